package e2e_test

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"choir.dev/choiros/test/choirtest"
)

// silentRegistry accepts connections and never answers.
func silentRegistry(t *testing.T) (url string, connections func() int) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	var held []net.Conn
	var accepting sync.WaitGroup
	accepting.Go(func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			mu.Lock()
			held = append(held, c)
			mu.Unlock()
		}
	})
	t.Cleanup(func() {
		_ = ln.Close()
		accepting.Wait()
		for _, c := range held {
			_ = c.Close()
		}
	})
	_, port, _ := net.SplitHostPort(ln.Addr().String())
	return "https://127.0.0.1:" + port + "/", func() int {
		mu.Lock()
		defer mu.Unlock()
		return len(held)
	}
}

// TestInstallingEndsWithChoir shows that the installation of the shell's dependencies, which runs
// in a box, ends when choir is killed, and that the next start removes what was unfinished and
// begins again.
func TestInstallingEndsWithChoir(t *testing.T) {
	t.Parallel()
	data := filepath.Join(t.TempDir(), "data")
	cache := filepath.Join(data, "cache", "node_modules")
	if err := os.MkdirAll(cache, 0o700); err != nil { // no dependencies are there yet
		t.Fatal(err)
	}
	registry, connections := silentRegistry(t)
	opts := choirtest.Options{Data: data, Env: []string{"npm_config_registry=" + registry}}
	filling := func() (out []string) {
		all, err := filepath.Glob(filepath.Join(cache, ".fill*"))
		if err != nil {
			t.Fatal(err)
		}
		return all
	}
	for round, want := range []string{"the first", "after the kill"} {
		in := choirtest.Start(t, opts)
		before := connections()
		ctx, cancel := context.WithCancel(t.Context())
		var asked sync.WaitGroup
		asked.Go(func() { _, _ = in.Run(ctx, "prompt", "--wait", "make the desktop red") }) // its checks need them
		choirtest.Eventually(t, 60*time.Second, "npm asks the registry, "+want, func() bool { return connections() > before })
		if n := len(filling()); n != 1 {
			t.Errorf("%s: %d trees are being filled", want, n)
		}
		installs := running(t, in.PID, "npm ci")
		if round == 0 {
			in.Kill()
		} else {
			in.Stop(t)
		}
		cancel()
		asked.Wait()
		choirtest.Eventually(t, 20*time.Second, "nothing of the installation is left", func() bool {
			for _, p := range installs {
				if b, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", p.pid)); err == nil && strings.HasPrefix(string(b), "npm ci") {
					return false
				}
			}
			return true
		})
		if len(installs) != 1 {
			t.Errorf("%s: %d installations ran: %v", want, len(installs), installs)
		}
	}
}
