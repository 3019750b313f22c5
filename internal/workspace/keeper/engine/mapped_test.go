package engine_test

import (
	"testing"

	"golang.org/x/sys/unix"
)

// TestAStoreToAMappingThatLivesIsSeen shows that a store into a mapped file, which changes no time
// while its page waits to be written, is in the next checkpoint nevertheless, while the mapping
// lives and afterwards, with watches and with full scans.
func TestAStoreToAMappingThatLivesIsSeen(t *testing.T) {
	if unix.Access("/dev/shm", unix.W_OK) == nil {
		t.Setenv("TMPDIR", "/dev/shm") // a page there always waits
	}
	for what, full := range map[string]bool{"by watches": false, "by a full scan": true} {
		c := watched(t)
		const p = "workspace/w/d1/f1"
		o := openFor(t, c.path(p)).mapIt(t)
		o.store(t, 'A')
		c.beside(full)
		believed(t)
		c.beside(full)
		for _, with := range []byte("BC") {
			o.store(t, with)
			c.beside(full)
			c.holds(what+", while it is mapped", p)
		}
		o.store(t, 'D')
		o.end(t)
		c.underStill("over")
		c.underStill("over")
		c.holds(what+", and when nobody has it any more", p)
	}
}
