package defence

// Name is what a defence is called in code, in the suite and in docs/attacks.md.
type Name string
