package shell

import (
	"testing"
	"time"
)

// TestASilentDevServerIsHeldAgainstAProgramBesideIt shows that a dev server that does not answer is
// blamed on the source only if another program in the box ran meanwhile; otherwise the machine or
// the box was too busy.
func TestASilentDevServerIsHeldAgainstAProgramBesideIt(t *testing.T) {
	for what, c := range map[string]struct {
		beside          comparison
		convicts, still bool
	}{
		"the machine is quiet":            {comparison{took: 50 * time.Millisecond, ended: true}, true, false},
		"the machine is busy":             {comparison{took: time.Second, ended: true}, false, false},
		"no program can be started":       {comparison{took: time.Second}, true, false},
		"nothing in the box answers":      {comparison{took: 20 * time.Second, late: true}, true, true},
		"the box's programs were stopped": {comparison{took: time.Second, ended: true, stopped: true}, true, true},
	} {
		silent := &silentServer{silence: 20 * time.Second}
		if got := c.beside.faultsServer(silent); got != c.convicts || silent.still != c.still {
			t.Errorf("%s: it is replaced: %v, its box stands still: %v", what, got, silent.still)
		}
	}
}

func TestTheFileThatWasChangedLast(t *testing.T) {
	now := time.Now()
	at := func(d time.Duration) int64 { return now.Add(d).UnixMilli() }
	files := []sourceFile{{"choiros/src/main.tsx", 1, at(-time.Hour)}, {"choiros/vite.config.ts", 1, at(-time.Second)}, {"choiros/index.html", 1, at(-time.Minute)}}
	if got := lastChanged(files, now); got != "vite.config.ts" {
		t.Errorf("%q", got)
	}
	files[2].time = at(time.Second) // a person has begun to mend it
	if got := lastChanged(files, now); got != "" {
		t.Errorf("%q was changed last before the hang, though not last at all", got)
	}
}
