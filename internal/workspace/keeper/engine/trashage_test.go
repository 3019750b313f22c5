package engine_test

import (
	"slices"
	"testing"
	"time"

	"choir.dev/choiros/internal/workspace/keeper/engine"
	"choir.dev/choiros/internal/workspace/keeper/wire"
)

// TestTheTrashIsOldByTheTimeItWasThere shows that a jump of the clock, under an engine or between
// two, empties no trash, and that a week in which the engine runs does.
func TestTheTrashIsOldByTheTimeItWasThere(t *testing.T) {
	const day = 24 * time.Hour
	// worked is the time that passes while an engine runs, and jumped is by how much the wall clock
	// was changed on top of that.
	var worked, jumped time.Duration
	start := time.Now()
	c := open(t, func(o *engine.Options) {
		o.Now = func() time.Time { return start.Add(worked) }
	})
	again := func() {
		t.Helper()
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
		// Another process starts from what the wall clock says.
		was, wall := worked, start.Add(worked+jumped).Round(0)
		c.opts.Now = func() time.Time { return wall.Add(worked - was) }
		c.Engine = nil
		c.reopen()
	}
	remove := func(p string) {
		t.Helper()
		c.write(p, "of "+p)
		if _, err := c.Remove(t.Context(), wire.RemoveRequest{Path: wire.Path(p)}); err != nil {
			t.Fatal(err)
		}
	}
	want := func(when string, paths ...string) {
		t.Helper()
		r, err := c.Trash(t.Context(), wire.TrashRequest{})
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, item := range r.Items {
			got = append(got, string(item.Path))
		}
		slices.Sort(got)
		if !slices.Equal(got, paths) {
			t.Errorf("%s the trash has %q; want %q", when, got, paths)
		}
	}
	remove("a")
	jumped = 30 * day
	again()
	remove("b")
	want("put forward a month,", "a", "b")
	jumped = -400 * day
	again()
	remove("c")
	jumped = 0
	again()
	remove("d")
	want("put back a year and right again,", "a", "b", "c", "d")
	worked += 4 * day
	remove("e")
	want("after some days,", "a", "b", "c", "d", "e")
	worked += 4 * day
	remove("f")
	again()
	remove("g")
	// b was made while the clock was ahead, so it sorts after what is younger, and it stays.
	want("after a week,", "b", "e", "f", "g")
	c.write(".git/choir/trash-age.json", "{damaged")
	again()
	remove("h")
	want("when nobody knows how old it is,", "b", "e", "f", "g", "h")
	worked += 24 * day
	remove("i")
	want("weeks later,", "i")
}
