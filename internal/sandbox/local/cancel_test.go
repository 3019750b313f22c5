package local_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/sandbox"
	"choir.dev/choiros/internal/sandbox/local"
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

// TestACancelledStartIsNoFailure: whoever goes away while a box starts, as a computer that falls asleep does, is
// told that, and nobody is told that a box did not start.
func TestACancelledStartIsNoFailure(t *testing.T) {
	var said log
	d, err := local.New(t.Context(), local.Options{Guest: sandboxtest.BareGuest(t), Dir: t.TempDir(), Logger: slog.New(slog.NewTextHandler(&said, nil))})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Errorf("close the driver: %v", err)
		}
	})
	e := sandboxtest.NewEnv(t, d)
	cancelled := 0
	for i := range 60 {
		ctx, cancel := context.WithCancel(t.Context())
		timer := time.AfterFunc(time.Duration(i)*250*time.Microsecond, cancel)
		box, err := e.Computer.Box(ctx, sandbox.BoxSpec{ID: fmt.Sprint("c", i), Kind: contract.BoxDirector})
		timer.Stop()
		cancel()
		switch {
		case err == nil:
			if err := box.Kill(); err != nil {
				t.Fatal(err)
			}
		case fault.Is(err, fault.Cancelled):
			cancelled++
		default:
			t.Errorf("a start that was cancelled: %v", err)
		}
	}
	if cancelled == 0 {
		t.Error("no start was cancelled")
	}
	if text := said.String(); text != "" {
		t.Errorf("the log says: %s", text)
	}
}

// log is what a logger wrote, for who reads while it is written.
type log struct {
	mu sync.Mutex
	b  strings.Builder
}

func (l *log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}
