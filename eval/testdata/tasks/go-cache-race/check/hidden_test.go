package cache

import (
	"sync"
	"testing"
	"time"
)

func TestHiddenExpiry(t *testing.T) {
	now := time.Unix(0, 0)
	c := New(func() time.Time { return now })
	c.Put("a", "1", time.Second)
	c.Put("b", "2", time.Hour)
	now = now.Add(time.Second)
	if v, ok := c.Get("a"); ok || v != "" {
		t.Errorf("at its end: %q, %v", v, ok)
	}
	if c.Len() != 1 {
		t.Errorf("Len is %d", c.Len())
	}
	var all sync.WaitGroup
	for range 8 {
		all.Add(1)
		go func() {
			defer all.Done()
			for i := range 500 {
				c.Put(string(rune('a'+i%20)), "x", time.Second)
				c.Get("b")
				c.Len()
			}
		}()
	}
	all.Wait() // without a lock this dies of concurrent map writes
}
