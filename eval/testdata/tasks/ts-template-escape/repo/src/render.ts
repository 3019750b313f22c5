import { escape } from './escape'

export type Values = { [name: string]: string | Values[] }

/** Fills {{name}} escaped, {{{name}}} as it is, and {{#name}}…{{/name}} once for each of a list. */
export function render(template: string, values: Values): string {
  return template
    .replace(/\{\{#(\w+)\}\}(.*)\{\{\/\w+\}\}/g, (_, name, inner) => (values[name] as Values[]).map((v) => render(inner, v)).join(''))
    .replace(/\{\{\{(\w+)\}\}\}/g, (_, name) => values[name] as string)
    .replace(/\{\{(\w+)\}\}/g, (_, name) => escape(values[name] as string))
}
