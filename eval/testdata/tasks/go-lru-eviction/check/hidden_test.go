package lru

import "testing"

func TestHiddenLRU(t *testing.T) {
	c := New(2)
	c.Put("a", "1")
	c.Put("b", "2")
	c.Get("a")
	c.Put("c", "3")
	if _, ok := c.Get("b"); ok {
		t.Error("b stays")
	}
	if v, ok := c.Get("a"); !ok || v != "1" {
		t.Error("a is gone")
	}
	c.Put("a", "4")
	c.Put("a", "5")
	if v, _ := c.Get("a"); v != "5" || c.Len() != 2 {
		t.Errorf("a is %q, of %d", v, c.Len())
	}
	if _, ok := c.Get("c"); !ok {
		t.Error("putting a again evicted c")
	}
}
