package fleet

import (
	"testing"

	"choir.dev/choiros/internal/rpc"
)

// What is asked of its history is answered by a computer that does not wake, too.
func TestTheHistoryOfOneThatDoesNotWakeAnswers(t *testing.T) {
	if missing := (past{}).Methods().Unbound(func(d rpc.Declared) bool { return d.Needs == rpc.History }); len(missing) > 0 {
		t.Errorf("nothing answers %v of one that does not wake", missing)
	}
}
