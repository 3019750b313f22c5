import { History } from './history'

export class Editor {
  private readonly history = new History('')

  get text(): string {
    return this.history.now
  }

  insert(at: number, words: string): void {
    if (words === '') return
    const text = this.text
    this.history.push(text.slice(0, at) + words + text.slice(at))
  }

  undo(): boolean {
    return this.history.undo()
  }

  redo(): boolean {
    return this.history.redo()
  }
}
