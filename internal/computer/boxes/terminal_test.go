package boxes

import (
	"errors"
	"fmt"
	"testing"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/egress"
	"choir.dev/choiros/internal/sandbox"
)

// TestATerminalWaitsForItsOwnUser shows that a waiting box is given only to the user whose last
// command ran in it, once, while it lives and equals the box that would be opened now.
func TestATerminalWaitsForItsOwnUser(t *testing.T) {
	mounts := []sandbox.Mount{{Source: sandbox.Live(""), Target: "/computer", Mode: sandbox.ReadWrite}}
	policy := egress.Policy{Profile: contract.EgressDefault, Rules: rules(t, "a.example:443")}
	var k keptTerminals
	at := func(user string) *Terminal {
		return &Terminal{Box: &slowBox{done: make(chan struct{}), asked: make(chan struct{}, 10)}, user: user, mounts: mounts, policy: policy}
	}
	mine := at("a")
	taken := k.give(mine)
	if taken == nil || k.give(at("a")) != nil {
		t.Error("not one box waits for a user")
	}
	if k.take("b", mounts, policy) != nil {
		t.Error("another user's box was given")
	}
	if k.take("a", mounts[:0], policy) != nil {
		t.Error("a box with other mounts was given")
	}
	for what, now := range map[string]egress.Policy{
		"less than is granted now":       {Profile: contract.EgressDefault, Rules: rules(t, "a.example:443", "b.example:443")},
		"more than is granted now":       {Profile: contract.EgressDefault},
		"what nobody could say is still": {Profile: contract.EgressDefault, Rules: policy.Rules, Err: errors.New("unknown")},
	} {
		if k.take("a", mounts, now) != nil {
			t.Errorf("a box was given that may reach %s", what)
		}
	}
	if k.take("a", mounts, policy) != mine || k.take("a", mounts, policy) != nil {
		t.Error("the box was not given once")
	}
	select {
	case <-taken:
	default:
		t.Error("nobody is told that the box was taken")
	}
	if k.drop(mine) {
		t.Error("a box that was taken is ended")
	}
	if k.give(mine); !k.drop(mine) || k.take("a", mounts, policy) != nil {
		t.Error("a box that is ended was given")
	}
	gone := at("a")
	k.give(gone)
	close(gone.Box.(*slowBox).done)
	if k.take("a", mounts, policy) != nil {
		t.Error("a box that has ended was given")
	}
	for i := range keptMost + 1 {
		if (k.give(at(fmt.Sprint("user ", i))) != nil) != (i < keptMost) {
			t.Errorf("%d boxes wait", i+1)
		}
	}
}

func rules(t *testing.T, texts ...string) []egress.Rule {
	t.Helper()
	out, err := egress.ParseRules(texts)
	if err != nil {
		t.Fatal(err)
	}
	return out
}
