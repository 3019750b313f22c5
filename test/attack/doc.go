// Package attack holds the attacks that a computer must survive, one test per
// row of its list (named by the row's number), run against every sandbox driver
// it concerns.
//
// Two kinds of test are here. TestMatrix runs the registry (rows): each row with
// all of its defences switched off, with each one alone and with all on, in the
// build with the tag defenceswitches, which `make attack` makes. The other tests
// are for what no switch can show, and run in every build; registry and tests
// are listed in docs/attacks.md, which TestTableIsTrue holds to be true. A row of
// an attack whose both ends only the package can play that defends runs that
// package's test (beside). Why a row does not apply is looked at by
// TestNothingToAttack.
//
// In those, a probe first succeeds where nothing protects against it (the control), so
// that a test that passes means something. A part of a row that can't apply
// asserts why, such as a hole that the installed git has mended: then a weaker
// control stands for it. What row 15 says of event ids is tested here through
// the control API and in internal/ledger against the log.
package attack
