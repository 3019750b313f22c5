// Package crash names the points at which tests can make a process die.
//
// A call of At marks one. In every ordinary build it is an empty function that the compiler
// removes. In a build with the tag crashpoints, which only test/chaos makes, a process that
// reaches an armed point ends at once, as by kill -9. docs/crash-points.md lists the
// points.
package crash
