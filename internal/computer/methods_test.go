package computer

import (
	"testing"

	"choir.dev/choiros/internal/rpc"
)

// Every declared method is answered by an awake computer.
func TestEveryMethodIsAnswered(t *testing.T) {
	if missing := (&Computer{}).bindMethods().Unbound(func(d rpc.Declared) bool { return !d.Host }); len(missing) > 0 {
		t.Errorf("nothing answers %v", missing)
	}
}
