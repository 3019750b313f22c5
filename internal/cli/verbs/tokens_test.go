package verbs

import (
	"slices"
	"testing"

	"choir.dev/choiros/contract"
)

// The help says of each capability that a token can have what it is for, in one order.
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
