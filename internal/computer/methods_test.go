package computer

import (
	"testing"

	"choir.dev/choiros/internal/rpc"
)

// Every declared method is answered: by an awake computer, and what is asked of
// its history also by one that does not wake.
func TestEveryMethodIsAnswered(t *testing.T) {
	if missing := (&Computer{}).bindMethods().Unbound(func(d rpc.Declared) bool { return !d.Host }); len(missing) > 0 {
		t.Errorf("nothing answers %v", missing)
	}
	if missing := (past{}).Methods().Unbound(func(d rpc.Declared) bool { return d.Needs == rpc.History }); len(missing) > 0 {
		t.Errorf("nothing answers %v of one that does not wake", missing)
	}
}
