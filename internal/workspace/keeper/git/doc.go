// Package git runs the git program on a repository whose bytes nobody vouches for.
//
// What holds of it:
//
//   - Git is never given a work tree: it stands in .git, bare. So nothing that a tree says
//     (attributes, filters, hooks, fsmonitor, a nested repository's configuration) is ever
//     read as an instruction.
//   - Its whole environment is made here, and every setting by which git would start a
//     program, reach a network or look elsewhere is forced there, where it outranks every
//     file.
//   - Each process ends with the keeper and with its context. A long-lived reader that is
//     out of step with its process begins anew.
//   - What it answers is bounded; that it could not look is never taken for nothing being
//     there.
//
// It never writes a file of the repository itself, and does not know what an object, a
// ref or a commit is to the keeper.
package git
