//go:build race

package document_test

import "flag"

// Everything is many times slower under the race detector, which looks for
// other things than the property tests do.
func init() {
	if err := flag.Set("rapid.checks", "15"); err != nil {
		panic(err)
	}
}
