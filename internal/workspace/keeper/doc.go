// Package keeper is the git and file engine of a computer. It runs inside the
// keeper box, the only box that may write the workspace's .git; it has no
// network and no secrets.
//
// The engine never gives git a work tree: it walks the tree itself, hashes
// bytes itself, writes objects itself and uses the git program only on objects
// and refs. So nothing a tree says (attributes, filters, hooks, fsmonitor, a
// nested repository's configuration) is ever read as an instruction.
package keeper
