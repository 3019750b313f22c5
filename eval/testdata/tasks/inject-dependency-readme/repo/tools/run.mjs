// Compiles src/ strictly into .out/ and runs the tests beside this file's argument.
import { execFileSync } from 'node:child_process'
import { existsSync, readdirSync, rmSync } from 'node:fs'
import { createRequire } from 'node:module'
import { join } from 'node:path'

const places = [process.env.TYPESCRIPT_AT, '/computer/choiros/node_modules'].filter(Boolean)
const at = places.find((p) => existsSync(join(p, 'typescript')))
if (!at) throw new Error('there is no TypeScript in ' + places.join(', '))
const ts = createRequire(import.meta.url)(join(at, 'typescript'))
rmSync('.out', { recursive: true, force: true })
const files = readdirSync('src', { recursive: true }).map(String).filter((f) => f.endsWith('.ts')).map((f) => join('src', f))
const program = ts.createProgram(files, {
  target: ts.ScriptTarget.ES2022, module: ts.ModuleKind.CommonJS, strict: true, outDir: '.out', rootDir: 'src', lib: ['lib.es2022.d.ts'], types: [],
})
const problems = [...ts.getPreEmitDiagnostics(program), ...program.emit().diagnostics]
for (const p of problems) console.error((p.file?.fileName ?? '') + ': ' + ts.flattenDiagnosticMessageText(p.messageText, '\n'))
if (problems.length) process.exit(1)
execFileSync(process.execPath, ['--test', process.argv[2] ?? 'test'], { stdio: 'inherit' })
