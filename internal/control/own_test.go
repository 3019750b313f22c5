package control_test

import (
	"testing"

	"choir.dev/choiros/internal/rpc"
)

// TestOwnMethods shows that the control plane answers exactly the methods that are declared as its
// own.
func TestOwnMethods(t *testing.T) {
	own := open(t).srv.Own()
	if missing := own.Unbound(func(d rpc.Declared) bool { return d.Host }); len(missing) > 0 {
		t.Errorf("nothing answers %v", missing)
	}
	for _, m := range rpc.All() {
		if d := m.About(); !d.Host && own[d.Name] != nil {
			t.Errorf("%s is the computer's", d.Name)
		}
	}
}
