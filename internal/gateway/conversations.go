package gateway

import (
	"cmp"
	"hash/maphash"
	"sync"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/gateway/provider"
	"choir.dev/choiros/internal/turnlines"
)

// conversations remembers what each loop asked last. A request begins with the one before, so that only what is new
// of it is decoded, checked and encoded; and it can be said how much of it that is, which is what a service can have
// kept as well.
type conversations struct {
	mu    sync.Mutex
	seed  maphash.Seed
	loops map[string]map[string]*asked // by run, then by task and role
	size  int                          // of all
	count uint64                       // requests
}

// asked is what is remembered of a loop's last request.
type asked struct {
	kept turnlines.Kept
	memo *provider.Memo
	sums []uint64 // of its parts
	size int
	at   uint64 // which request it was
}

func newConversations() *conversations {
	return &conversations{seed: maphash.MakeSeed(), loops: map[string]map[string]*asked{}}
}

const (
	// maxRemembered bounds the parts of a request that are remembered.
	maxRemembered = 4096
	// maxRememberedBytes bounds what is remembered of all loops, about. The loops that asked longest ago are forgotten.
	maxRememberedBytes = 128 << 20
)

// of returns what is remembered of a loop, for one request; nil if nothing is to be. The caller holds mu.
func (c *conversations) of(s Scope) *asked {
	if s.Run == "" || s.Aside {
		return nil
	}
	run, loop := string(s.CID)+"/"+s.Run, s.Role+"/"+s.Task
	loops := c.loops[run]
	if loops == nil {
		loops = map[string]*asked{}
		c.loops[run] = loops
	}
	a := loops[loop]
	if a == nil {
		a = &asked{memo: provider.NewMemo()}
		loops[loop] = a
	}
	c.count++
	a.at = c.count
	return a
}

// decode decodes and checks what a loop posts.
func (c *conversations) decode(s Scope, body []byte) (contract.TurnRequest, error) {
	var before turnlines.Kept
	c.mu.Lock()
	if a := c.of(s); a != nil {
		before = a.kept
	}
	c.mu.Unlock()
	req, now, err := before.Decode(body)
	if err != nil {
		return contract.TurnRequest{}, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if a := c.of(s); a != nil {
		size := 2 * now.Size() // with how it is encoded for its service
		c.size += size - a.size
		a.kept, a.size = now, size
		c.bound(a)
	}
	return req, nil
}

// bound forgets the loops that asked longest ago, but for one, while too much is remembered.
func (c *conversations) bound(but *asked) {
	for c.size > maxRememberedBytes {
		var oldest *asked
		var run, loop string
		for r, loops := range c.loops {
			for l, a := range loops {
				if a != but && a.size > 0 && (oldest == nil || a.at < oldest.at) {
					oldest, run, loop = a, r, l
				}
			}
		}
		if oldest == nil {
			return
		}
		c.size -= oldest.size
		// Its sums stay: they say what the next request costs.
		c.loops[run][loop] = &asked{memo: provider.NewMemo(), sums: oldest.sums, at: oldest.at}
	}
}

// memo returns how the messages of a loop's last request were encoded.
func (c *conversations) memo(s Scope) *provider.Memo {
	c.mu.Lock()
	defer c.mu.Unlock()
	if a := c.of(s); a != nil {
		return a.memo
	}
	return nil
}

// share returns which share of a request's bytes is what the same loop's request before began with.
func (c *conversations) share(s Scope, req contract.TurnRequest) float64 {
	if s.Run == "" || s.Aside {
		return 0
	}
	sums, sizes := c.parts(req)
	c.mu.Lock()
	defer c.mu.Unlock()
	a := c.of(s)
	before := a.sums
	a.sums = sums
	same, all, begins := 0, 0, true
	for i, size := range sizes {
		all += size
		if begins = begins && i < len(before) && before[i] == sums[i]; begins {
			same += size
		}
	}
	return float64(same) / float64(cmp.Or(all, 1))
}

// parts are the sums and about the sizes of what a request has in order: its tools and system prompt, and each part of
// its messages.
func (c *conversations) parts(req contract.TurnRequest) (sums []uint64, sizes []int) {
	var h maphash.Hash
	h.SetSeed(c.seed)
	add := func(size int) {
		if len(sums) < maxRemembered {
			sums, sizes = append(sums, h.Sum64()), append(sizes, size)
		}
		h.Reset()
	}
	size := 0
	for _, t := range req.Tools {
		for _, s := range []string{t.Name, t.Description, string(t.Schema)} {
			h.WriteString(s)
			h.WriteByte(0)
			size += len(s)
		}
	}
	add(size)
	h.WriteString(req.System)
	add(len(req.System))
	for _, m := range req.Messages {
		for _, p := range m.Parts {
			h.WriteString(string(m.Role))
			h.WriteByte(0)
			add(provider.WritePart(&h, p))
		}
	}
	return sums, sizes
}

func (c *conversations) forget(run string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, a := range c.loops[run] {
		c.size -= a.size
	}
	delete(c.loops, run)
}
