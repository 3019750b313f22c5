package local

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	"choir.dev/choiros/internal/sandbox"
	"choir.dev/choiros/internal/sandbox/sandboxtest"
)

// TestOneBoxTakesAllLocks: the kernel counts locks on files for nobody, and who closes a file goes
// through all locks on it. A box that holds very many is ended and says why, even if no descriptor
// and no process that lives tells of them. A box that holds some lives.
func TestOneBoxTakesAllLocks(t *testing.T) {
	sandboxtest.AsUser(t, func(t *testing.T) {
		for kind, how := range map[string][]string{
			"of a process": {"locks", "process"}, "of an open file": {"locks", "file"}, "of a mapping": {"locks", "mapped"},
			"unseen": {"unseen", "locks", "file"},
		} {
			var errs errorLog
			d, err := New(t.Context(), Options{Guest: sandboxtest.BareGuest(t), Dir: t.TempDir(), Logger: slog.New(slog.NewTextHandler(&errs, &slog.HandlerOptions{Level: slog.LevelError}))})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = d.Close() })
			e := sandboxtest.NewEnv(t, d)
			quiet := holding(t, e, "quiet", "locks", "process", "500", "/tmp")
			greedy := holding(t, e, "greedy", append(how, "10000", "/tmp")...)
			if ended := sandboxtest.AwaitEnd(t, greedy, time.Minute); ended.Reason != sandbox.Shared || !strings.Contains(ended.Detail, "locks on files") {
				t.Errorf("%s: the box ended for %v", kind, ended)
			}
			if said := errs.said.Load(); said != nil {
				t.Errorf("%s: choir's log blames others: %s", kind, *said)
			}
			if quiet.Err() != nil {
				t.Errorf("%s: the other box ended: %v", kind, quiet.Err())
			}
			if err := quiet.Kill(); err != nil {
				t.Fatal(err)
			}
		}
	})
}
