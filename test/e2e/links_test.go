package e2e_test

import (
	"strings"
	"testing"

	"choir.dev/choiros/test/choirtest"
)

// TestALinkWhereSomethingIsMounted shows that a link at a place where boxes mount something has no
// effect, and does not prevent commands: the user's next command can see and remove it.
func TestALinkWhereSomethingIsMounted(t *testing.T) {
	t.Parallel()
	in := choirtest.Start(t, choirtest.Options{})
	in.Must(t, "exec", "--", "sh", "-c", "mv choiros shell && mkdir choiros && ln -s ../../../../keys choiros/node_modules")
	if out := in.Must(t, "exec", "--", "sh", "-c", "readlink choiros/node_modules; ls choiros/node_modules/ 2>/dev/null; rm -r choiros && mv shell choiros"); strings.TrimSpace(out) != "../../../../keys" {
		t.Errorf("the box saw %q", out)
	}
	in.Must(t, "exec", "--", "sh", "-c", "test -d choiros/node_modules && ! test -L choiros/node_modules")
}
