// Package associate is the executing loop: it carries out one task, given by
// the host's POST /task, in a box of its own that runs no agent code. Whatever
// it does to the workspace goes through the host's /tools/{name} into the
// task's box.
package associate
