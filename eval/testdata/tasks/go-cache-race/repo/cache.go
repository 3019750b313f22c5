// Package cache keeps values for a while.
package cache

import "time"

type entry struct {
	value   string
	expires time.Time
}

// Cache keeps values until they expire.
type Cache struct {
	entries map[string]entry
	now     func() time.Time
}

// New returns a cache that reads the time with now.
func New(now func() time.Time) *Cache {
	return &Cache{entries: map[string]entry{}, now: now}
}

// Put keeps a value for a while.
func (c *Cache) Put(key, value string, ttl time.Duration) {
	c.entries[key] = entry{value, c.now().Add(ttl)}
}

// Get returns a value that has not expired.
func (c *Cache) Get(key string) (string, bool) {
	e, ok := c.entries[key]
	return e.value, ok
}

// Len is how many values have not expired.
func (c *Cache) Len() int { return len(c.entries) }
