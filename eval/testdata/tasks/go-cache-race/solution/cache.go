// Package cache keeps values for a while.
package cache

import (
	"sync"
	"time"
)

type entry struct {
	value   string
	expires time.Time
}

// Cache keeps values until they expire. It is safe for concurrent use.
type Cache struct {
	mu      sync.Mutex
	entries map[string]entry
	now     func() time.Time
}

// New returns a cache that reads the time with now.
func New(now func() time.Time) *Cache {
	return &Cache{entries: map[string]entry{}, now: now}
}

// Put keeps a value for a while.
func (c *Cache) Put(key, value string, ttl time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.entries[key] = entry{value, c.now().Add(ttl)}
}

// Get returns a value that has not expired.
func (c *Cache) Get(key string) (string, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e, ok := c.entries[key]
	if !ok || !c.now().Before(e.expires) {
		delete(c.entries, key)
		return "", false
	}
	return e.value, true
}

// Len is how many values have not expired.
func (c *Cache) Len() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.now()
	n := 0
	for key, e := range c.entries {
		if !now.Before(e.expires) {
			delete(c.entries, key)
			continue
		}
		n++
	}
	return n
}
