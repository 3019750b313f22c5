//go:build race

package state_test

import "flag"

// SQLite is some thirty times slower under the race detector, so the property tests, whose purpose
// is another, run fewer cases.
func init() {
	if err := flag.Set("rapid.checks", "15"); err != nil {
		panic(err)
	}
}
