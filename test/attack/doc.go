// Package attack holds the attacks that a computer must survive, one test for each row of the list
// (named by the row's number), run against every sandbox driver that it concerns.
//
// There are two kinds of test. TestMatrix runs the registry (rows): each row with all of its
// defences switched off, with each one alone and with all on, in the build with the tag
// defenceswitches, which `make attack` makes. The other tests show what no switch can show, and run
// in every build. Registry and tests are listed in docs/attacks.md, which TestTableIsTrue compares
// with them. If both ends of an attack can be played only by the package that defends, its row runs
// a test of that package (beside). TestNothingToAttack checks why a row does not apply.
//
// In the other tests, a probe first succeeds where nothing protects against it (the control), so
// that passing means something. A part of a row that can't apply asserts why, for example because
// the installed git has closed a hole, and then has a weaker control. What row 15 says of event ids
// is tested here through the control API, and in internal/ledger on the log.
package attack
