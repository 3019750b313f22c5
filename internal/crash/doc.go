// Package crash names the instants at which a process may be made to die.
//
// A call of At marks one. In every ordinary build it is an empty function that
// the compiler removes. In a build with the tag crashpoints, which only
// test/chaos makes, a process that reaches a point that is armed ends there and
// then, as by kill -9. docs/crash-points.md lists the points.
package crash
