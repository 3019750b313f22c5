import { describe, expect, it } from 'vitest'
import { callWords, changedWords, checkWords, citedWords, commandsWords, nowWords, plainWords, ranWords, sameWords, saysAlready, withoutNotice } from '../src/apps/run/sentences'
import { blank, type RunView, type TaskView } from '../src/stores/runs'

const command = { argv: ['npm', 'test'], exit_code: 0, duration_ms: 1, stdout: '', stderr: '', truncated: false }
const run = (more: Partial<RunView>): RunView => ({ ...blank('r', ''), status: 'working', ...more })
const task = (more: Partial<TaskView>): TaskView => ({ task: 't', kind: 'agent', goal: 'do', attempt: 1, status: 'working', calls: [], ...more })

describe('evidence, in sentences', () => {
  it('counts files, and says what happened to all of them', () => {
    expect(changedWords([{ op: 'modified' }])).toBe('Changed 1 file')
    expect(changedWords([{ op: 'modified' }, { op: 'mode' }])).toBe('Changed 2 files')
    expect(changedWords([{ op: 'added' }])).toBe('Added 1 file')
    expect(changedWords([{ op: 'deleted' }, { op: 'deleted' }])).toBe('Removed 2 files')
    expect(changedWords([{ op: 'added' }, { op: 'deleted' }])).toBe('Changed 2 files')
  })

  it('says how a command ended where it did not end well', () => {
    expect(plainWords(ranWords(command))).toBe('Ran npm test')
    expect(plainWords(ranWords({ argv: ['bash', '-c', 'make build'], exit_code: 2 }))).toBe('Ran make build: it ended with exit code 2')
    expect(plainWords(ranWords({ argv: ['nowhere'], exit_code: -1 }))).toBe('Could not start nowhere')
    expect(commandsWords([{ exit_code: 0 }, { exit_code: 0 }])).toBe('Ran 2 commands')
    expect(commandsWords([{ exit_code: 0 }, { exit_code: 2 }])).toBe('Ran 2 commands, 1 ended with an error code')
  })

  it('says how many tests passed only where a runner counted them, and never how many failed', () => {
    const check = { name: 'tests', command }
    expect(checkWords({ ...check, status: 'pass', runner: 'vitest', ran: 3 })).toBe('3 tests passed')
    expect(checkWords({ ...check, status: 'pass', runner: 'vitest', ran: 1, skipped: 2 })).toBe('1 test passed, 2 skipped')
    expect(checkWords({ ...check, status: 'pass', runner: 'exit code', ran: 3 })).toBe('The check “tests” passed')
    expect(checkWords({ ...check, status: 'pass' })).toBe('The check “tests” passed')
    expect(checkWords({ ...check, status: 'fail', runner: 'vitest', ran: 1200 })).toBe('Tests failed: 1,200 tests ran')
    expect(checkWords({ ...check, status: 'fail', command: { ...command, exit_code: 1 } })).toBe('The check “tests” failed with exit code 1')
    expect(checkWords({ ...check, status: 'unknown', runner: 'vitest', ran: 3 })).toBe('The check “tests” could not be run')
  })

  it('says what a call does, then what it did, and bounds what a model wrote', () => {
    const call = { name: 'read', args: { path: 'a.md' } }
    expect(plainWords(callWords({ ...call }))).toBe('Reading a.md')
    expect(plainWords(callWords({ ...call, ok: true }))).toBe('Read a.md')
    expect(plainWords(callWords({ ...call, ok: false }))).toBe('Reading a.md: it failed')
    expect(plainWords(callWords({ name: 'bash', args: { command: 'ls\n-l' }, ok: true }))).toBe('Ran ls -l')
    expect(plainWords(callWords({ name: 'mcp__x', args: null, ok: true }))).toBe('Used mcp__x')
    expect(plainWords(callWords({ name: 'x'.repeat(500), args: { path: 'y'.repeat(5000) } })).length).toBeLessThan(160)
    expect(plainWords(callWords({ name: 'toString', args: {} }))).toBe('Using toString')
  })

  it('names a source by its title, or where it has none by its address', () => {
    expect(citedWords({ title: 'On doors', address: 'https://a.b', source: 's' })).toBe('Quoted “On doors”')
    expect(citedWords({ address: 'https://a.b', source: 's' })).toBe('Quoted “https://a.b”')
  })
})

describe('what a run does now', () => {
  const question = { id: 'q', text: 'Which?' }
  const step = (text: string) => ({ text, status: 'active' as const })
  it.each<[string, Partial<RunView>]>([
    ['Queued: it has not begun.', { status: 'queued' }],
    ['Planning what to do.', { status: 'planning' }],
    ['Planning: a Director takes it over', { status: 'planning', reason: 'a Director takes it over' }],
    ['Working.', {}],
    ['Working on: paint', { plan: [{ text: 'look', status: 'done' }, step('paint')] }],
    ['Working on: paint, and 1 more', { plan: [step('paint'), step('dry')] }],
    ['Working: reading a.md', { tasks: [task({ calls: [{ call: 'c', attempt: 1, name: 'read', args: { path: 'a.md' } }] })] }],
    ['Waits for your answer.', { status: 'waiting', questions: [question] }],
    ['Waits: the disk is full', { status: 'waiting', questions: [{ ...question, answer: 'red' }], reason: 'the disk is full' }],
    ['Waits for your word on the console.', { status: 'waiting', approvals: [{ approval: 'a', task: 't', act: { kind: 'fetch', run: 'r', host: 'h', port: 1 } }], reason: 'something waits' }],
    ['Waits until you have looked at what it made.', { status: 'waiting', looks: [{ task: 't', review: 1, paths: 2 }], reason: 'what “an agent’s goal” made waits' }],
    ['Paused: it goes on when you resume it.', { paused: true, plan: [step('paint')] }],
    ['', { status: 'done', plan: [step('paint')] }],
    ['', { status: 'failed', paused: true }],
  ])('%s', (words, more) => expect(nowWords(run(more))).toBe(words))
})

describe('texts that stand once', () => {
  it('are without the rehearsal’s notice, in a rehearsal only', () => {
    const text = 'It is blue.\n\nThis was a rehearsal: no model is connected.'
    expect(withoutNotice({ provider: 'rehearsal' }, text)).toBe('It is blue.')
    expect(withoutNotice({ provider: 'anthropic' }, text)).toBe(text)
    expect(withoutNotice({ provider: 'rehearsal' }, 'He said: This was a rehearsal: ours.')).toBe('He said: This was a rehearsal: ours.')
  })
  it('are the same but for spaces, case and how they end', () => {
    expect(sameWords('Make it  blue.', 'make it blue')).toBe(true)
    expect(sameWords('Make it blue', 'It is blue')).toBe(false)
    expect(saysAlready('It failed:\nno such file', 'no  such file')).toBe(true)
  })
})
