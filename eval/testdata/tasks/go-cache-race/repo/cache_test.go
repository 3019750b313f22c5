package cache

import (
	"testing"
	"time"
)

func TestPutGet(t *testing.T) {
	now := time.Unix(100, 0)
	c := New(func() time.Time { return now })
	c.Put("a", "1", time.Minute)
	if v, ok := c.Get("a"); !ok || v != "1" {
		t.Fatalf("got %q, %v", v, ok)
	}
	now = now.Add(time.Hour)
	if v, ok := c.Get("a"); ok {
		t.Fatalf("it kept %q for an hour", v)
	}
}
