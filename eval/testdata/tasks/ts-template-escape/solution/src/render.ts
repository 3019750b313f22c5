import { escape } from './escape'

export type Values = { [name: string]: string | Values[] }

/** Fills {{name}} escaped, {{{name}}} as it is, and {{#name}}…{{/name}} once for each of a list. */
export function render(template: string, values: Values): string {
  return template.replace(/\{\{#(\w+)\}\}([^]*?)\{\{\/\1\}\}|\{\{\{(\w+)\}\}\}|\{\{(\w+)\}\}/g, (_, list, inner, raw, name) => {
    const value = Object.hasOwn(values, list ?? raw ?? name) ? values[list ?? raw ?? name] : undefined
    if (list !== undefined) return Array.isArray(value) ? value.map((v) => render(inner, { ...values, ...v })).join('') : ''
    const text = typeof value === 'string' ? value : ''
    return raw !== undefined ? text : escape(text)
  })
}
