package local_test

import (
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/guest"
	"choir.dev/choiros/internal/sandbox"
	"choir.dev/choiros/internal/sandbox/sandboxtest"
)

// TestOneBoxHoldsAllWatches: the box that uses up the epoll watches of the host's
// user is ended and says why; another lives, and connections work again.
func TestOneBoxHoldsAllWatches(t *testing.T) {
	sandboxtest.AsUser(t, func(t *testing.T) {
		if os.Geteuid() == 0 {
			return // root's are those of the machine's own services
		}
		e := sandboxtest.NewEnv(t, open(t))
		quiet, still := e.Box(t, sandbox.BoxSpec{ID: "quiet"})
		greedy, g := e.Box(t, sandbox.BoxSpec{ID: "greedy"})
		go func() {
			_, _ = g.Exec(t.Context(), guest.ExecRequest{Argv: []string{sandboxtest.ProbeInside, "watches", "0"}}, guest.Streams{})
		}()
		ended := sandboxtest.AwaitEnd(t, greedy, 30*time.Second)
		if ended.Reason != sandbox.Shared || ended.Code() != fault.Exhausted || !strings.Contains(ended.Detail, "epoll watches") {
			t.Errorf("the box ended for %v", ended)
		}
		sandboxtest.Eventually(t, 20*time.Second, "connections work again", func() bool { return connect() == nil })
		if quiet.Err() != nil {
			t.Errorf("the other box ended: %v", quiet.Err())
		}
		if r := sandboxtest.Run(t, still, "echo", "here"); r.Out != "here\n" {
			t.Errorf("the other box: %+v", r)
		}
	})
}

// connect takes four watches for a moment.
func connect() error {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	defer ln.Close()
	near, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		return err
	}
	defer near.Close()
	far, err := ln.Accept()
	if err != nil {
		return err
	}
	_, err = io.WriteString(near, "x")
	return errors.Join(err, far.Close())
}
