package e2e_test

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"choir.dev/choiros/test/choirtest"
)

// mostSyncs bounds the syncs of a first start, in all its processes, until the new computer has its
// first checkpoint.
const mostSyncs = 24

// TestAFirstStartSyncsFewTimes counts with strace how often a first start waits for the disk: new
// directories are built under another name and synced once, rather than file by file.
func TestAFirstStartSyncsFewTimes(t *testing.T) {
	strace, err := exec.LookPath("strace")
	if err != nil {
		t.Fatal("this test needs strace: install it, for example with: apt-get install strace")
	}
	dir := choirtest.Scratch(t)
	trace, watched := filepath.Join(dir, "trace"), filepath.Join(dir, "choir")
	// With -D the traced process is the one that the test starts and ends. Its client runs without
	// tracing.
	script := fmt.Sprintf("#!/bin/sh\n[ \"$1\" = up ] || exec %[3]q \"$@\"\nexec %[1]q -D -q -f -y -o %[2]q -e trace=fsync,fdatasync,syncfs,sync_file_range,msync,sync -e signal=none %[3]q \"$@\"\n", strace, trace, choirtest.Binary(t))
	if err := os.WriteFile(watched, []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	in := choirtest.Start(t, choirtest.Options{Binary: watched})
	choirtest.Eventually(t, time.Minute, "the first checkpoint", func() bool {
		return strings.Contains(string(in.Get(t, "/api/computers")), `"awake"`) && strings.Contains(in.Must(t, "checkpoints"), "initial")
	})
	b, err := os.ReadFile(trace)
	if err != nil {
		t.Fatal(err)
	}
	counts, n := map[string]int{}, 0
	for _, m := range regexp.MustCompile(`(?m)^\d+ +(fsync|fdatasync|syncfs|sync_file_range|msync|sync)\((?:\d+<([^>]*)>)?`).FindAllStringSubmatch(string(b), -1) {
		n++
		counts[m[1]+" "+m[2]]++
	}
	t.Logf("%d syncs", n)
	if n == 0 || n > mostSyncs {
		t.Errorf("%d syncs; at most %d are expected:", n, mostSyncs)
		for _, what := range slices.Sorted(maps.Keys(counts)) {
			t.Logf("%3d %s", counts[what], what)
		}
	}
}
