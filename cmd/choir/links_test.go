package main

import (
	"os/exec"
	"slices"
	"strings"
	"testing"

	"choir.dev/choiros/test/choirtest"
)

// TestTheHostLinksNoHostileParsing shows that the code that reads trees written by boxes is linked
// into the guest's binary only, so that no tree can mislead the host. From the keeper, the host
// links only the messages that they exchange.
func TestTheHostLinksNoHostileParsing(t *testing.T) {
	t.Parallel()
	const (
		keeper = "choir.dev/choiros/internal/workspace/keeper"
		kinds  = "choir.dev/choiros/internal/guest/kinds"
	)
	of := func(pkg string, args ...string) (found []string) {
		cmd := exec.CommandContext(t.Context(), "go", append(append([]string{"list", "-deps"}, args...), pkg)...)
		cmd.Dir = choirtest.Root()
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("list what %s links: %v", pkg, err)
		}
		for dep := range strings.FieldsSeq(string(out)) {
			if dep == kinds || dep == keeper || strings.HasPrefix(dep, keeper+"/") {
				found = append(found, dep)
			}
		}
		return found
	}
	if host := of("./cmd/choir", "-tags=embedguest"); !slices.Equal(host, []string{keeper + "/wire"}) {
		t.Errorf("of the keeper and what guests serve, the host links %v; want %s/wire alone", host, keeper)
	}
	if guest := of("./cmd/choir-guest"); len(guest) < 3 {
		t.Errorf("the guest links %v: what this looks for has other names by now", guest)
	}
}
