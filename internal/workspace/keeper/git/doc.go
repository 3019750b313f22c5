// Package git runs the git program on an untrusted repository.
//
// It guarantees the following. Git is never given a work tree: it runs in .git, as in a
// bare repository, so nothing that a tree contains (attributes, filters, hooks, fsmonitor,
// a nested repository's configuration) is ever read as an instruction. Its whole
// environment is made here, and every setting by which git would start a program, reach a
// network or look elsewhere is forced there, where it outranks every file. Each process
// ends with the keeper and with its context. A long-lived reader that is out of step with
// its process is restarted. Its output is bounded, and a failure to look is never taken for
// nothing being there.
//
// It never writes a file of the repository itself, and does not know what an object, a ref
// or a commit means to the keeper.
package git
