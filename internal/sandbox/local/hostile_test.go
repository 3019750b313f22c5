package local_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/sandbox"
	"choir.dev/choiros/internal/sandbox/local/hostfs"
	"choir.dev/choiros/internal/sandbox/sandboxtest"
)

// TestHostileTreesHoldNothingUp shows that a box that leaves trees that are hard to walk and to
// remove is measured and ended and leaves its place free, and that the computer can be opened again
// at once, also when the removal was interrupted.
func TestHostileTreesHoldNothingUp(t *testing.T) {
	sandboxtest.AsUser(t, func(t *testing.T) {
		d := open(t)
		e := sandboxtest.NewEnv(t, d)
		if err := e.Computer.Volumes().Make(t.Context(), sandbox.Written("t1")); err != nil {
			t.Fatal(err)
		}
		spec := sandbox.BoxSpec{ID: "t1", Kind: contract.BoxTask, Limits: sandbox.Limits{DiskBytes: 1 << 30, DiskInodes: 100_000}, Mounts: []sandbox.Mount{
			{Target: "/computer", Mode: sandbox.Overlay, Lower: []sandbox.Volume{sandbox.Live("")}, Upper: sandbox.Written("t1")},
			{Target: "/scrap", Mode: sandbox.Overlay, Lower: []sandbox.Volume{sandbox.Live("")}},
		}}
		for round := range 2 { // the second round begins with what the first left
			b, g := e.Box(t, spec)
			for _, in := range []string{"/computer", "/scrap"} {
				dir := fmt.Sprintf("%s/round%d", in, round) // process ids may repeat between rounds
				if r := sandboxtest.Run(t, g, "sh", "-c", "mkdir "+dir+" && "+sandboxtest.ProbeInside+" deep "+dir+" 400 && "+sandboxtest.ProbeInside+" closed "+dir); r.Code != 0 {
					t.Fatalf("%+v", r)
				}
			}
			sandboxtest.Eventually(t, 30*time.Second, "it is measured", func() bool {
				u, err := b.Usage(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				return u.DiskInodes >= 800
			})
			if err := b.Kill(); err != nil {
				t.Fatal(err)
			}
			if _, err := os.Lstat(filepath.Join(e.Dir, "boxes", "t1", ".run")); err == nil {
				t.Error("what the driver kept for the box is still in its place")
			}
		}
		cid := contract.NewCID()
		again := func() sandbox.Computer {
			c, err := d.Open(t.Context(), sandbox.ComputerSpec{CID: cid, Dir: e.Dir})
			if err != nil {
				t.Fatal(err)
			}
			return c
		}
		if err := e.Computer.Close(); err != nil {
			t.Fatal(err)
		}
		defer again().Close()
		sandboxtest.Eventually(t, time.Minute, "what the boxes left is gone", func() bool {
			left, err := os.ReadDir(filepath.Join(e.Dir, "removing", "boxes"))
			return err == nil && len(left) == 0
		})
		// The caller has to remove the upper, which is too deep for the test's own cleanup.
		dir, err := hostfs.Open(e.Dir)
		if err != nil {
			t.Fatal(err)
		}
		defer dir.Close()
		if err := dir.RemoveAll(t.Context(), "boxes/t1"); err != nil {
			t.Error(err)
		}
	})
}
