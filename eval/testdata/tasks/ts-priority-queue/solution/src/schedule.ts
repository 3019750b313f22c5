import { Heap } from './heap'

export interface Job {
  name: string
  priority: number
}

export function order(jobs: Job[]): string[] {
  const heap = new Heap<{ job: Job; at: number }>((a, b) => a.job.priority < b.job.priority || (a.job.priority === b.job.priority && a.at < b.at))
  jobs.forEach((job, at) => heap.push({ job, at }))
  const out: string[] = []
  while (heap.size) out.push(heap.pop()!.job.name)
  return out
}
