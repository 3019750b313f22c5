import { Heap } from './heap'

export interface Job {
  name: string
  priority: number
}

export function order(jobs: Job[]): string[] {
  const heap = new Heap<Job>((a, b) => a.priority < b.priority)
  for (const job of jobs) heap.push(job)
  const out: string[] = []
  while (heap.size) out.push(heap.pop()!.name)
  return out
}
