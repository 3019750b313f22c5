// Package lru keeps the values that were used last.
package lru

import "container/list"

type pair struct{ key, value string }

// Cache keeps at most size values.
type Cache struct {
	size  int
	order *list.List
	byKey map[string]*list.Element
}

// New returns an empty cache.
func New(size int) *Cache {
	return &Cache{size: size, order: list.New(), byKey: map[string]*list.Element{}}
}

// Get returns a value and marks it as used.
func (c *Cache) Get(key string) (string, bool) {
	e, ok := c.byKey[key]
	if !ok {
		return "", false
	}
	c.order.MoveToFront(e)
	return e.Value.(pair).value, true
}

// Put keeps a value and drops the one that was not used for longest.
func (c *Cache) Put(key, value string) {
	if e, ok := c.byKey[key]; ok {
		e.Value = pair{key, value}
		c.order.MoveToFront(e)
		return
	}
	c.byKey[key] = c.order.PushFront(pair{key, value})
	if c.order.Len() > c.size {
		last := c.order.Back()
		c.order.Remove(last)
		delete(c.byKey, last.Value.(pair).key)
	}
}

// Len is how many values it has.
func (c *Cache) Len() int { return len(c.byKey) }
