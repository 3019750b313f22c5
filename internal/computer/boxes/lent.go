package boxes

import (
	"maps"
	"slices"
	"sync"
)

// lent are the boxes of a machine that are open though nobody needs them yet, by who keeps them.
type lent struct {
	mu   sync.Mutex
	ends map[*func() bool]bool
}

// Lend has end called if the machine can open no other box. end ends the boxes that wait, and says whether there
// were any. Nobody calls it once stop has returned, except who had begun to.
func (c *Boxes) Lend(end func() bool) (stop func()) {
	l := &c.options.Machine.lent
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ends == nil {
		l.ends = map[*func() bool]bool{}
	}
	l.ends[&end] = true
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.ends, &end)
	}
}

// end ends all of them, and says whether there were any.
func (l *lent) end() bool {
	l.mu.Lock()
	ends := slices.Collect(maps.Keys(l.ends))
	l.mu.Unlock()
	any := false
	for _, end := range ends {
		any = (*end)() || any
	}
	return any
}
