package verbs

import (
	"slices"
	"testing"

	"choir.dev/choiros/contract"
)

// TestTheHelpSaysWhatTokensAreFor shows that the help describes every capability that a token can
// have, in one order.
func TestTheHelpSaysWhatTokensAreFor(t *testing.T) {
	var said []contract.Capability
	for _, l := range lendable {
		if l.says == "" {
			t.Errorf("%s is for nothing", l.may)
		}
		said = append(said, l.may)
	}
	if !slices.Equal(said, contract.Lendable) {
		t.Errorf("%v, want %v", said, contract.Lendable)
	}
}
