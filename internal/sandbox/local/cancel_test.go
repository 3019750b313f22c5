package local_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/sandbox"
	"choir.dev/choiros/internal/sandbox/sandboxtest"
)

// TestCancelledStart cancels starts of boxes at every moment and shows that nothing is left.
func TestCancelledStart(t *testing.T) {
	e := sandboxtest.NewEnv(t, open(t))
	for i := range 40 {
		ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i)*250*time.Microsecond)
		box, err := e.Computer.Box(ctx, sandbox.BoxSpec{ID: fmt.Sprint("c", i), Kind: contract.BoxTask, Mounts: []sandbox.Mount{e.LiveMount()}})
		cancel()
		if err == nil {
			if err := box.Kill(); err != nil {
				t.Fatal(err)
			}
		}
	}
	sandboxtest.Eventually(t, 5*time.Second, "no process of a box that was given up", func() bool {
		lines, err := filepath.Glob("/proc/[0-9]*/cmdline")
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range lines {
			line, err := os.ReadFile(path)
			if err == nil && strings.Contains(string(line), e.Live) {
				return false
			}
		}
		return true
	})
}
