import { preload, useApps, visible } from '../apps/registry'
import css from './Icons.module.css'
import { openApp } from './intents'

/** The apps, each with its icon and name. */
export function Icons({ className, opened }: { className: string | undefined; opened?: (window: string) => void }) {
  const apps = useApps((s) => s.apps)
  const open = (id: string) => {
    const window = openApp(id)
    if (window) opened?.(window)
  }
  return (
    <ul className={className} aria-label="Apps">
      {visible(apps).map((app) => (
        <li key={app.id}>
          <button type="button" className={css.icon} data-on-desktop data-testid={`icon-${app.id}`} data-fault={app.fault !== undefined} onPointerEnter={() => preload(app)} onFocus={() => preload(app)} onClick={(e) => e.detail < 2 && open(app.id)}>
            <span className={css.tile}>
              <app.icon size={21} strokeWidth={1.6} aria-hidden />
            </span>
            <span className={css.name}>{app.name}</span>
          </button>
        </li>
      ))}
    </ul>
  )
}
