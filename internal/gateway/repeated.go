package gateway

import (
	"encoding/json"
	"hash/maphash"
	"sync"

	"choir.dev/choiros/contract"
)

// conversations remembers what each loop asked last, as sums of the parts of its request, so that it can be said how much of the
// next one begins in the same way: that is what a service can have kept.
type conversations struct {
	mu   sync.Mutex
	seed maphash.Seed
	last map[string]map[string][]uint64 // by run, then by task and role
}

func newConversations() *conversations {
	return &conversations{seed: maphash.MakeSeed(), last: map[string]map[string][]uint64{}}
}

// maxRemembered bounds the parts of a request that are remembered.
const maxRemembered = 4096

// share returns which share of a request's bytes is what the same loop's request before began with.
func (c *conversations) share(s Scope, req contract.TurnRequest) float64 {
	if s.Run == "" || s.Aside {
		return 0
	}
	sums, sizes := c.parts(req)
	c.mu.Lock()
	defer c.mu.Unlock()
	run := string(s.CID) + "/" + s.Run
	loops := c.last[run]
	if loops == nil {
		loops = map[string][]uint64{}
		c.last[run] = loops
	}
	loop := s.Role + "/" + s.Task
	before := loops[loop]
	loops[loop] = sums
	same, all, begins := 0, 0, true
	for i, size := range sizes {
		all += size
		if begins = begins && i < len(before) && before[i] == sums[i]; begins {
			same += size
		}
	}
	if all == 0 {
		return 0
	}
	return float64(same) / float64(all)
}

// parts are the sums and sizes of what a request has in order: its tools and system prompt, and each part of its messages.
func (c *conversations) parts(req contract.TurnRequest) (sums []uint64, sizes []int) {
	add := func(role contract.MessageRole, v any) {
		b, err := json.Marshal(v)
		if err != nil || len(sums) == maxRemembered { // it was validated, so it can be encoded
			return
		}
		sums, sizes = append(sums, maphash.Bytes(c.seed, append(b, role...))), append(sizes, len(b))
	}
	add("", req.Tools)
	add("", req.System)
	for _, m := range req.Messages {
		for _, p := range m.Parts {
			add(m.Role, p)
		}
	}
	return sums, sizes
}

func (c *conversations) forget(run string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.last, run)
}
