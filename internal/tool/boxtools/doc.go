// Package boxtools holds what can be done in a task's or a verification's box:
// read, write, edit, search, run commands, look at git, check. Each tool is one
// declaration: what the registry needs to know of it, and the method that
// carries it out. The host reads the same declarations and decides by them what
// it forwards; the box's guest serves them under /tools/.
//
// Files are reached through os.Root, so no path leaves the workspace, by
// whatever symlink. Every output is bounded, and says so when it was cut.
package boxtools
