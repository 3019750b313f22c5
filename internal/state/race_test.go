//go:build race

package state_test

import "flag"

// SQLite is some thirty times slower under the race detector, which looks for
// other things than the property tests do.
func init() {
	if err := flag.Set("rapid.checks", "15"); err != nil {
		panic(err)
	}
}
