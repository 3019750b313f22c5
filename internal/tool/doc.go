// Package tool defines what a tool is: a declaration with the schema of its arguments, its
// effects and its limits, and the registry that admits declarations and finds them. Nothing
// outside of a declaration treats a tool specially by its name: what a task of kind inspect
// may use, what is repeated after a restart, what is shown to the user at once, who carries
// a call out and within which bounds follow from the declaration.
//
// Package boxtools declares the tools of a task's box, package associate the one
// that ends a task, package director those of a run, and package dispatch the
// ones that the host carries out itself.
package tool
