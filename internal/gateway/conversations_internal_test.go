package gateway

import (
	"strings"
	"testing"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/turnlines"
)

// TestWhatIsRememberedOfLoopsIsBounded: the loops that asked longest ago are forgotten, which their next requests do not notice, and of a
// run that ended nothing is left.
func TestWhatIsRememberedOfLoopsIsBounded(t *testing.T) {
	c := newConversations()
	body, err := turnlines.Encode(contract.TurnRequest{Messages: []contract.Message{{Role: contract.MessageUser, Parts: []contract.Part{{Text: strings.Repeat("x", 4<<20)}}}}})
	if err != nil {
		t.Fatal(err)
	}
	of := func(i int) Scope {
		return Scope{Run: string(rune('a' + i/2)), Task: string(rune('a' + i)), Role: "associate"}
	}
	const loops = 24 // of 16 MiB each
	for i := range loops {
		for range 2 {
			req, err := c.decode(of(i), body)
			if err != nil || len(req.Messages) != 1 {
				t.Fatalf("%v: %d messages", err, len(req.Messages))
			}
		}
		if c.size > maxRememberedBytes {
			t.Fatalf("%d bytes are remembered after %d loops", c.size, i+1)
		}
	}
	kept := func(i int) bool { return c.of(of(i)).size > 0 }
	if kept(0) || !kept(loops-1) {
		t.Errorf("the first loop is kept: %t, the last: %t", kept(0), kept(loops-1))
	}
	if req, err := c.decode(of(0), body); err != nil || len(req.Messages) != 1 || !kept(0) {
		t.Errorf("a loop that was forgotten asks: %v, %d messages", err, len(req.Messages))
	}
	for i := range loops {
		c.forget("/" + of(i).Run)
	}
	if c.size != 0 || len(c.loops) != 0 {
		t.Errorf("%d bytes of %d runs are left", c.size, len(c.loops))
	}
}
