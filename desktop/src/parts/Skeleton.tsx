import css from './parts.module.css'

/** A placeholder for content that takes noticeably long to load. */
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
