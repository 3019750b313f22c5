package fleet

import (
	"testing"

	"choir.dev/choiros/internal/rpc"
)

// TestTheHistoryOfOneThatDoesNotWakeAnswers shows that questions about its history are also
// answered for a computer that can't wake.
func TestTheHistoryOfOneThatDoesNotWakeAnswers(t *testing.T) {
	if missing := (past{}).Methods().Unbound(func(d rpc.Declared) bool { return d.Needs == rpc.History }); len(missing) > 0 {
		t.Errorf("nothing answers %v of one that does not wake", missing)
	}
}
