// A simulated computer with enough history to look at.

import { randomUUID } from 'node:crypto'

export const cid = 'k3v9q0x7m2a5t8w1'
const usage = (wall_ms, tool_calls, tokens_in, tokens_out, cost_usd) => ({ wall_ms, tool_calls, tokens_in, tokens_out, cost_usd })
const hex = (n) => Array.from({ length: 40 }, (_, i) => ((n * 7919 + i * 104729) % 16).toString(16)).join('')
const id = () => randomUUID().replace(/^(.{14})./, '$17')

const diff = `diff --git a/choiros/src/shell/desktop.css b/choiros/src/shell/desktop.css
index 3f1c2aa..9d0b7c1 100644
--- a/choiros/src/shell/desktop.css
+++ b/choiros/src/shell/desktop.css
@@ -5,7 +5,7 @@

 [data-testid='desktop'] {
   /* The desktop's background. Change this line to recolour the shell itself. */
-  --shell-background: var(--choir-background);
+  --shell-background: #0d1b2a;

   background-color: var(--shell-background);
 }
diff --git a/choiros/src/apps/clock/Clock.tsx b/choiros/src/apps/clock/Clock.tsx
new file mode 100644
--- /dev/null
+++ b/choiros/src/apps/clock/Clock.tsx
@@ -0,0 +1,9 @@
+import { useEffect, useState } from 'react'
+
+export default function Clock() {
+  const [now, setNow] = useState(() => new Date())
+  useEffect(() => {
+    const timer = setInterval(() => setNow(new Date()), 1000)
+    return () => clearInterval(timer)
+  }, [])
+  return <time>{now.toLocaleTimeString()}</time>
+}
`

const proposedDiff = `--- a/artifacts/runs/deep-blue.md
+++ b/artifacts/runs/deep-blue.md
@@ -3,5 +3,5 @@
 ## Plan

 - [x] Recolour
-- [x] Add a clock, but only on large screens
+- [x] Add a clock
@@ -18,3 +18,5 @@
 ## Notes

 The blue is that of the book’s cover.
+
+Checked on two displays: the contrast of every label is at least 4.5 to 1.
`

export class World {
  constructor() {
    this.proposals = new Map()
    this.log = []
    this.peers = new Set()
    this.now = Date.parse('2026-03-14T09:12:00Z')
    this.checkpoints = []
    this.windows = []
    this.theme = null
    this.rehearsal = true
    this.fill()
  }

  append(role, type, data, extra = {}) {
    this.now += 1400
    const e = {
      specversion: '1.0', id: id(), source: `/computers/${cid}/${role}`, type, time: new Date(this.now).toISOString(), datacontenttype: 'application/json',
      data, sequence: this.log.length + 1, epoch: 1, computer: cid, ...extra,
    }
    this.log.push(e)
    if (type === 'checkpoint.created') this.checkpoints.unshift({ ...data, sequence: e.sequence, time: e.time, author: role, ...(extra.run ? { run: extra.run } : {}) })
    if (type === 'window.opened') this.windows.push({ ...data, z: this.windows.length + 1 })
    for (const p of this.peers) p.publish(`live.${cid}.${role}.${type}`, e)
    return e
  }

  checkpoint(role, kind, message, verified, files, run) {
    const n = this.checkpoints.length + 1
    this.append(role, 'checkpoint.created', { commit: hex(n), ...(n > 1 ? { parent: hex(n - 1) } : {}), tree: hex(n + 500), kind, message, seq: this.log.length, verified, files }, run ? { run } : {})
  }

  fill() {
    this.append('system', 'computer.created', { name: 'Studio', driver: 'local' })
    this.append('system', 'computer.woken', { version: '0.1.0', driver: 'local', isolation: 'bubblewrap' })
    this.checkpoint('system', 'initial', 'The computer as it came', 'pass', 96)
    this.append('system', 'desktop.built', { commit: hex(1), tree: hex(501), files: 24, bytes: 712000, duration_ms: 1610 })
    this.checkpoint('person', 'manual', 'Notes from the reading group', 'unknown', 4)
    this.append('person', 'file.written', { path: 'workspace/notes/week-3.md', size: 2210 })
    this.checkpoint('system', 'auto', 'Every 5 minutes', 'unknown', 2)
    this.failed = this.runOf('Fix the failing test in parser', 'failed')
    this.run = this.runOf('Make the desktop background deep blue and add a clock app', 'done')
    this.checkpoint('person', 'after', 'npm run lint', 'unknown', 1)
  }

  /** Adds a proposal to a run's document that waits for the user. */
  propose(run, overlaps) {
    const document = this.log.find((e) => e.run === run && e.type === 'run.started').data.document
    const p = { id: id(), document, base: 3, author: 'associate', role: 'associate', run: this.failed, time: new Date(this.now).toISOString(), status: 'open', on: 4, overlaps, diff: proposedDiff }
    this.proposals.set(p.id, p)
    this.append('associate', 'document.proposed', { proposal: p.id, document, base: 3, author: 'associate', sha256: `sha256:${'0'.repeat(64)}`, body: '' }, { run: this.failed })
  }

  runOf(prompt, outcome) {
    const run = id()
    const task = id()
    const about = { run, task }
    const good = outcome === 'done'
    this.append('person', 'prompt.submitted', { text: prompt }, { run })
    this.append('system', 'run.started', { document: id(), provider: 'anthropic', model: 'claude-sonnet' }, { run })
    const plan = (a, b, c) => ({
      objective: good ? 'A deep blue desktop with a clock on it' : 'Make the parser’s test pass',
      plan: good
        ? [{ text: 'Recolour the shell’s background', status: a, task }, { text: 'Add a clock app as a folder of its own', status: b, task }, { text: 'Check that it type-checks, builds and renders', status: c, task }]
        : [{ text: 'Find why the test fails', status: a }, { text: 'Correct the parser', status: b, task }],
    })
    this.append('director', 'run.planned', plan('active', 'open', 'open'), { run })
    this.append('system', 'run.moved', { status: 'working' }, { run })
    this.append('director', 'task.requested', { task: { version: 1, id: task, run, attempt: 1, kind: 'agent', goal: good ? 'Recolour the shell and add src/apps/clock' : 'Correct the parser' } }, about)
    this.checkpoint('system', 'before', `Before: ${prompt}`, 'unknown', 0, run)
    this.append('system', 'task.started', { attempt: 1, box: 'b-1', base: hex(9), fence: 'f' }, about)
    this.append('associate', 'tool.called', { call: 'c1', name: 'edit', args: { path: 'choiros/src/shell/desktop.css' }, read_only: false, attempt: 1 }, about)
    this.append('associate', 'tool.returned', { call: 'c1', name: 'edit', ok: true, output: 'replaced 1 line', duration_ms: 8, attempt: 1 }, about)
    if (!good) this.append('system', 'egress.denied', { box: 'b-1', kind: 'task', host: 'files.example.net', port: 443, reason: 'not in the policy' }, about)
    const check = (name, argv, code, ms, stdout) => ({ name, status: code === 0 ? 'pass' : 'fail', command: { argv, exit_code: code, duration_ms: ms, stdout, stderr: '', truncated: false } })
    const verification = good
      ? { profile: 'smoke', status: 'pass', tree: hex(3), checks: [check('type check', ['npm', 'run', 'typecheck'], 0, 2140, 'no errors'), check('build', ['npm', 'run', 'build'], 0, 1610, 'built in 1.61s'), check('renders', ['choir', 'render'], 0, 940, 'painted in 412 ms')] }
      : { profile: 'standard', status: 'fail', checks: [check('npm test', ['npm', 'test'], 1, 3300, 'FAIL parser.test.ts\n  expected 4, got 3')] }
    this.append('system', 'verification.finished', { attempt: 1, verification }, about)
    this.append('associate', 'task.finished', {
      result: {
        version: 1, task, attempt: 1, status: good ? 'ok' : 'failed', summary: good ? 'Recoloured the shell and added a clock.' : 'The test still fails: the parser drops the last token.',
        base: hex(9), ...(good ? { head: hex(10) } : {}),
        changes: good ? [{ path: 'choiros/src/shell/desktop.css', op: 'modified', added: 1, removed: 1 }, { path: 'choiros/src/apps/clock/Clock.tsx', op: 'added', added: 9, removed: 0 }] : [],
        ...(good ? { diff } : {}),
        commands: [{ argv: ['npm', good ? 'run' : 'test', ...(good ? ['typecheck'] : [])], exit_code: good ? 0 : 1, duration_ms: 2140, stdout: good ? 'no errors\n' : 'FAIL parser.test.ts\n', stderr: '', truncated: false }],
        verification, egress: { ...(good ? {} : { denied: ['files.example.net:443'] }) }, usage: usage(18400, 7, 21840, 1630, 0.031),
      },
    }, about)
    this.append('director', 'run.planned', good ? plan('done', 'done', 'done') : plan('done', 'failed', 'open'), { run })
    if (good) {
      this.checkpoint('associate', 'task', 'Deep blue desktop, and a clock', 'pass', 3, run)
    }
    this.append('director', 'run.reported', {
      status: outcome, verified: good ? 'pass' : 'fail', usage: usage(24100, 9, 26412, 2058, 0.0412), ...(good ? { checkpoint: hex(10) } : {}),
      summary: good
        ? 'The desktop is **deep blue** (`#0d1b2a`), and there is a *Clock* among your icons.\n\n- the colour is one line in `src/shell/desktop.css`\n- the clock is a folder of its own, `src/apps/clock`\n\nBoth were type-checked, built and rendered before they were kept.'
        : 'The parser drops the last token when the input has no newline at its end. I could not make the test pass within the budget; nothing was changed.',
    }, { run })
    return run
  }

  session() {
    return {
      cid, name: 'Studio', user: 'u-1', nats: { url: '/_choir/nats', jwt: 'eyJ0eXAiOiJKV1QiLCJhbGciOiJlZDI1NTE5LW5rZXkifQ.e30.x', seed: 'SUAAGCQRDAPSMLJUHNBESUCXLZSWY432QGEI7FU5USV3FOOAY7HNLXDKKA', inbox: '_INBOX.look' },
      lastSequence: this.log.length, readOnly: false,
      provider: this.rehearsal ? { name: 'rehearsal', model: 'rehearsal', rehearsal: true } : { name: 'anthropic', model: 'claude-sonnet', rehearsal: false, network: 'default', budgetUSD: 1 },
    }
  }

  answer(subject, body) {
    if (subject === `user.${cid}.action`) {
      const run = body.type === 'prompt.submitted' ? id() : body.run
      const e = this.append('person', body.type, body.data, run ? { run } : {})
      return { sequence: e.sequence, ...(body.type === 'prompt.submitted' ? { run } : {}) }
    }
    switch (subject.replace(`svc.${cid}.`, '')) {
      case 'log.read':
        return { events: this.log.filter((e) => e.sequence > body.after).slice(0, body.limit), last: this.log.length }
      case 'state.snapshot':
        return {
          sequence: this.log.length, computer: { cid, name: 'Studio', driver: 'local', isolation: 'bubblewrap', notes: [] }, theme: this.theme, windows: this.windows,
          runs: [this.run, this.failed].map((run) => {
            const of = (type) => this.log.find((e) => e.run === run && e.type === type)
            const r = of('run.reported').data
            return { run, prompt: of('prompt.submitted').data.text, status: r.status, started: of('prompt.submitted').time, ended: of('run.reported').time, summary: r.summary, verified: r.verified, document: of('run.started').data.document, usage: r.usage }
          }),
          checkpoints: this.checkpoints, documents: [],
        }
      case 'run.get':
        return { events: this.log.filter((e) => e.run === body.run && e.sequence > body.after), more: false }
      case 'document.get':
        return { document: body.document, title: 'A deep blue desktop', path: 'artifacts/runs/deep-blue.md', revision: 4, author: 'director', time: new Date(this.now).toISOString(), body: '# A deep blue desktop\n\n## Plan\n\n- [x] Recolour\n- [x] Add a clock\n' }
      case 'proposal.list':
        return { proposals: [...this.proposals.values()].filter((p) => p.document === body.document).map((p) => ({ ...p, diff: undefined, overlaps: undefined })) }
      case 'proposal.get':
        return this.proposals.get(body.proposal)
      case 'proposal.accept':
      case 'proposal.dismiss': {
        const resolution = subject.endsWith('accept') ? 'accepted' : 'dismissed'
        this.proposals.delete(body.proposal)
        const e = this.append('person', 'proposal.resolved', { ...body, resolution, by: 'u-1', ...(resolution === 'accepted' ? { revision: 5 } : {}) })
        return { id: body.proposal, resolution, sequence: e.sequence, ...(resolution === 'accepted' ? { revision: 5 } : {}) }
      }
      case 'checkpoint.list':
        return { checkpoints: [], more: false }
      case 'checkpoint.create':
        this.checkpoint('person', 'manual', body.message, 'unknown', 1)
        return { commit: this.checkpoints[0].commit, sequence: this.log.length, created: true }
      case 'checkpoint.diff':
        return { from: body.from, to: body.to, changes: [{ path: 'choiros/src/shell/desktop.css', op: 'modified', added: 1, removed: 1 }], diff, truncated: false }
      case 'checkpoint.restore':
      case 'checkpoint.undo':
      case 'run.undo':
        if (body.dry_run) {
          return { to: body.to ?? hex(4), kept: [], changes: [{ path: 'choiros/src/shell/desktop.css', op: 'modified', added: 1, removed: 1 }, { path: 'choiros/src/apps/clock/Clock.tsx', op: 'deleted', added: 0, removed: 9 }] }
        }
        this.append('person', 'checkpoint.restored', { to: body.to ?? hex(4), safety: hex(70), checkpoint: hex(71) })
        this.checkpoint('person', 'restore', 'Back to an earlier checkpoint', 'pass', 2)
        return { to: body.to ?? hex(4), safety: hex(70), checkpoint: hex(71), sequence: this.log.length }
      case 'exec.run': {
        this.append('person', 'command.started', { command: body.id, argv: body.argv })
        if (body.argv[2].includes('theme.json')) {
          this.theme = JSON.parse(body.argv[4])
          this.append('system', 'theme.changed', { theme: this.theme, sha256: `sha256:${'0'.repeat(64)}` })
        }
        setTimeout(() => this.append('system', 'command.finished', { command: body.id, exit_code: 0, duration_ms: 38 }), 60)
        return { command: body.id, sequence: this.log.length }
      }
      case 'exec.output':
        return { chunks: body.after < 0 ? [{ n: 0, stream: 'stdout', text: '3f1c2aa Deep blue desktop, and a clock\n9d0b7c1 Notes from the reading group\n41aa0ce The computer as it came\n' }] : [], running: false, exit_code: 0, truncated: false }
    }
    throw Object.assign(new Error(`nobody answers ${subject}`), { code: 'unavailable' })
  }
}
