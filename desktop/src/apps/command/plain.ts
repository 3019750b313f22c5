// CSI, OSC (ended by BEL or ST) and two-character escapes.
// eslint-disable-next-line no-control-regex
const escapes = /\u001b(?:\[[0-?]*[ -/]*[@-~]|\][^\u0007\u001b]*(?:\u0007|\u001b\\)?|[@-Z\\-_])/g
// eslint-disable-next-line no-control-regex
const controls = /[\u0000-\u0008\u000b\u000c\u000e-\u001a\u001c-\u001f\u007f]/g

/** Output as text: terminal escapes and control characters are dropped, a bare CR starts the line over. */
export function plain(text: string): string {
  return text
    .replace(escapes, '')
    .replace(controls, '')
    .replace(/\r\n/g, '\n')
    .replace(/[^\n]*\r/g, '')
}
