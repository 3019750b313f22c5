// Package attack holds the attacks that a computer must survive, one test per
// row of its list (named by the row's number), run against every sandbox driver
// it concerns.
//
// A probe first succeeds where nothing protects against it (the control), so
// that a test that passes means something. A part of a row that can't apply
// asserts why, such as a hole that the installed git has mended: then a weaker
// control stands for it. What row 15 says of event ids is tested here through
// the control API and in internal/ledger against the log.
package attack
