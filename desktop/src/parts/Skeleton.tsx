import css from './parts.module.css'

/** What stands in for content that takes longer than a blink. */
export function Skeleton() {
  return (
    <div className={css.skeleton} aria-busy="true" aria-label="Loading" role="status">
      <span />
      <span />
      <span />
      <span />
    </div>
  )
}
