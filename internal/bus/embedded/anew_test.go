package embedded_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/bus"
	"choir.dev/choiros/internal/bus/embedded"
	"choir.dev/choiros/test/choirtest"
)

// anew is a server whose store fails, with two logs of three messages each.
type anew struct {
	*embedded.Server
	t       *testing.T
	dir     string
	streams jetstream.JetStream
	cids    []contract.CID
}

func newAnew(t *testing.T) *anew {
	t.Helper()
	dir := t.TempDir()
	a := &anew{t: t, dir: filepath.Join(dir, "nats")}
	s, err := embedded.Open(t.Context(), embedded.Options{Dir: a.dir, KeysDir: filepath.Join(dir, "keys"), Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	nc, err := s.Dial()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		nc.Close()
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	if a.streams, err = jetstream.New(nc); err != nil {
		t.Fatal(err)
	}
	a.Server = s
	for range 2 {
		cid := contract.NewCID()
		a.ensure(cid)
		for i := range 3 {
			if _, err := a.streams.Publish(t.Context(), contract.SubjectLog(cid, contract.KindSystem, "box.opened"), []byte(fmt.Sprintf("message %d", i))); err != nil {
				t.Fatal(err)
			}
		}
		a.cids = append(a.cids, cid)
	}
	return a
}

func (a *anew) ensure(cid contract.CID) {
	a.t.Helper()
	if err := a.OpenStream(contract.StreamLog(cid), func() error { return bus.EnsureStream(a.t.Context(), a.streams, cid, 1) }); err != nil {
		a.t.Fatal(err)
	}
}

// again restarts the server and waits until the client has reconnected.
func (a *anew) again() {
	a.t.Helper()
	a.FailStore()
	choirtest.Eventually(a.t, 30*time.Second, "the server has started anew", func() bool { return a.Health() == nil })
	choirtest.Eventually(a.t, 30*time.Second, "it is reached", func() bool {
		ctx, done := context.WithTimeout(a.t.Context(), time.Second)
		defer done()
		_, err := a.streams.AccountInfo(ctx)
		return err == nil
	})
}

// block returns the path of the file that holds a log's messages.
func (a *anew) block(cid contract.CID) string {
	a.t.Helper()
	found, err := filepath.Glob(filepath.Join(a.dir, "jetstream", "*", "streams", contract.StreamLog(cid), "msgs", "1.blk"))
	if err != nil || len(found) != 1 {
		a.t.Fatal(found, err)
	}
	return found[0]
}

// TestAServerThatStartsAnewOpensNoClosedLog shows that a restart of the server does not touch
// closed logs: one that was damaged stays as it was found, where the server would have truncated
// it, and stays closed. An undamaged one is opened when it is asked for, and the log that was open
// is served again.
func TestAServerThatStartsAnewOpensNoClosedLog(t *testing.T) {
	a := newAnew(t)
	shut := a.cids[0]
	if err := a.CloseStream(contract.StreamLog(shut)); err != nil {
		t.Fatal(err)
	}
	whole, err := os.ReadFile(a.block(shut))
	if err != nil {
		t.Fatal(err)
	}
	damaged := bytes.Clone(whole)
	damaged[bytes.Index(damaged, []byte("message 2"))] ^= 1
	if err := os.WriteFile(a.block(shut), damaged, 0o600); err != nil {
		t.Fatal(err)
	}
	for range 2 { // the second restart finds what the first one left
		a.again()
		if now, err := os.ReadFile(a.block(shut)); err != nil || !bytes.Equal(now, damaged) {
			t.Fatalf("the log has %d bytes, not the %d that it had: %v", len(now), len(damaged), err)
		}
		if _, err := a.streams.Stream(t.Context(), contract.StreamLog(shut)); !errors.Is(err, jetstream.ErrStreamNotFound) {
			t.Errorf("the closed log is open: %v", err)
		}
		if left, err := os.ReadDir(filepath.Join(a.dir, "held")); err != nil || len(left) != 0 {
			t.Errorf("second names are left: %v, %v", left, err)
		}
	}
	if err := os.WriteFile(a.block(shut), whole, 0o600); err != nil {
		t.Fatal(err)
	}
	a.ensure(shut)
	for _, cid := range a.cids {
		s, err := a.streams.Stream(t.Context(), contract.StreamLog(cid))
		if err != nil {
			t.Fatal(err)
		}
		if n := s.CachedInfo().State.Msgs; n != 3 {
			t.Errorf("%s has %d messages, not 3", cid, n)
		}
	}
}

// TestWhoLooksSeesNoStart shows that while the server restarts again and again, whoever inspects a
// closed log finds it whole, and removes nothing that is kept for the restart.
func TestWhoLooksSeesNoStart(t *testing.T) {
	a := newAnew(t)
	shut := a.cids[0]
	if err := a.CloseStream(contract.StreamLog(shut)); err != nil {
		t.Fatal(err)
	}
	started := make(chan struct{})
	go func() {
		defer close(started)
		for range 4 {
			a.FailStore()
			for a.Health() != nil {
				select {
				case <-t.Context().Done():
					return
				case <-time.After(time.Millisecond):
				}
			}
		}
	}()
	for looks := 0; ; looks++ {
		select {
		case <-started:
			t.Logf("%d looks", looks)
			return
		default:
		}
		err := a.WithFiles(func() error {
			if held, err := bus.Held(a.dir); err != nil || len(held) != 0 {
				return fmt.Errorf("held only: %v, %w", held, err)
			}
			if err := bus.PutBack(a.dir, shut); err != nil {
				return err
			}
			damage, err := bus.ReadStore(t.Context(), a.dir, shut, func(bus.Message) error { return nil })
			if len(damage) > 0 {
				return fmt.Errorf("damaged: %v", damage)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}
