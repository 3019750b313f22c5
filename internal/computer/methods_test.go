package computer

import (
	"testing"

	"choir.dev/choiros/internal/rpc"
)

// TestEveryMethodIsAnswered shows that an awake computer answers every declared method.
func TestEveryMethodIsAnswered(t *testing.T) {
	if missing := (&Computer{}).bindMethods().Unbound(func(d rpc.Declared) bool { return !d.Host }); len(missing) > 0 {
		t.Errorf("nothing answers %v", missing)
	}
}
