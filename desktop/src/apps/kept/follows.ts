import type { Fact } from '../../link/services'

/** The facts that are forgotten with one: those that name it as where they came from, and what follows from those. */
export function following(facts: Fact[], id: string): Fact[] {
  const gone = new Set([id])
  for (let before = 0; before !== gone.size; ) {
    before = gone.size
    for (const f of facts) if (f.from?.some((x) => gone.has(x))) gone.add(f.id)
  }
  return facts.filter((f) => f.id !== id && gone.has(f.id))
}

/** Who had it kept, in words. */
export function sayer(f: Fact): string {
  if (f.run) return 'You, in the prompt of a run'
  const kind = f.actor.split(':', 1)[0]
  return kind === 'program' ? 'A program of yours' : kind === 'app' ? 'This desktop’s page' : 'You'
}
