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
	for _, l := range tokenCapabilities {
		if l.says == "" {
			t.Errorf("%s is for nothing", l.may)
		}
		said = append(said, l.may)
	}
	if !slices.Equal(said, contract.TokenCapabilities) {
		t.Errorf("%v, want %v", said, contract.TokenCapabilities)
	}
}
