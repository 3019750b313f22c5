import { Component, type ErrorInfo, type ReactNode } from 'react'
import { RotateCcw, TriangleAlert } from 'lucide-react'
import parts from '../parts/parts.module.css'
import { onHot } from './hot'
import css from './ErrorCard.module.css'

interface Props {
  /** What failed, as the subject of the card's sentence. */
  what: string
  /** Called with each error. */
  failed?: (error: unknown) => void
  /** What has to be done before trying again. */
  again?: () => void
  children: ReactNode
}

/** Shows an error of its children and leaves everything else as it is. When the code is replaced the children are rendered again. */
export class ErrorCard extends Component<Props, { error: Error | null; stack: string }> {
  override state = { error: null as Error | null, stack: '' }
  private stop = () => {}
  private readonly retry = () => {
    if (this.state.error) this.setState({ error: null, stack: '' })
  }

  static getDerivedStateFromError(e: unknown) {
    return { error: e instanceof Error ? e : new Error(String(e)) }
  }

  override componentDidCatch(error: unknown, info: ErrorInfo) {
    this.props.failed?.(error)
    this.setState({ stack: info.componentStack ?? '' })
  }

  override componentDidMount() {
    this.stop = onHot('vite:afterUpdate', this.retry)
  }

  override componentWillUnmount() {
    this.stop()
  }

  override render() {
    const { error, stack } = this.state
    if (!error) return this.props.children
    return (
      <div className={css.card} role="alert">
        <TriangleAlert size={22} aria-hidden />
        <h2>{this.props.what} stopped working</h2>
        <p>{error.message}</p>
        <p className={css.safe}>Your files and history are safe. Try again, ask for a fix below, or go back with Time Travel.</p>
        <button type="button" className={parts.button} onClick={() => {
            this.props.again?.()
            this.retry()
          }}>
          <RotateCcw size={14} aria-hidden /> Try again
        </button>
        {stack && (
          <details>
            <summary>Details</summary>
            <pre tabIndex={0}>{`${error.stack ?? ''}\n${stack}`.slice(0, 6000)}</pre>
          </details>
        )}
      </div>
    )
  }
}
