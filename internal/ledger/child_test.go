package ledger_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/bus"
	"choir.dev/choiros/internal/ledger"
)

// The test binary runs itself as a child process that appends and prints what was
// acknowledged. childEnv holds its instructions as "key=value" words.
const childEnv = "CHOIR_LEDGER_CHILD"

func TestMain(m *testing.M) {
	if orders := os.Getenv(childEnv); orders != "" {
		if err := child(orders); err != nil {
			fmt.Fprintln(os.Stderr, "child:", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func child(orders string) error {
	o := map[string]string{}
	for _, word := range strings.Fields(orders) {
		k, v, _ := strings.Cut(word, "=")
		o[k] = v
	}
	number := func(k string) int { n, _ := strconv.Atoi(o[k]); return n } // absent: 0
	ctx := context.Background()
	var js jetstream.JetStream
	if o["sync"] == "off" {
		srv, err := startServer(o["dir"], false)
		if err != nil {
			return err
		}
		nc, err := nats.Connect("", nats.InProcessServer(srv))
		if err != nil {
			return err
		}
		if js, err = jetstream.New(nc); err != nil {
			return err
		}
	} else {
		b, err := bus.Open(ctx, bus.Options{Dir: o["dir"], Logger: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError}))})
		if err != nil {
			return err
		}
		js = b.JetStream()
	}
	var hits atomic.Int64
	opts := ledger.Options{CID: contract.CID(o["cid"])}.AtStep(func(point string) {
		if point == o["die"] && hits.Add(1) == int64(number("at")) {
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {} // the signal is on its way
		}
	})
	l, err := ledger.Open(ctx, js, opts)
	if err != nil {
		return err
	}
	errs := make(chan error, number("workers"))
	var out sync.Mutex
	for w := range number("workers") {
		go func() {
			for i := 0; number("count") == 0 || i < number("count"); i++ {
				drafts := make([]contract.Draft, 1)
				if number("burst") > 0 && i%5 == 4 {
					drafts = make([]contract.Draft, number("burst"))
				}
				for j := range drafts {
					drafts[j] = prompt(fmt.Sprint(w, " ", i, " ", j, " ", strings.Repeat("x", 300)))
				}
				events, err := l.Append(ctx, drafts...)
				if err != nil {
					errs <- err
					return
				}
				var line strings.Builder
				for _, e := range events {
					fmt.Fprintf(&line, "ACK %s %d %x\n", e.ID, e.Sequence, contract.Digest(e))
				}
				out.Lock()
				_, err = os.Stdout.WriteString(line.String()) // one write, straight to the pipe
				out.Unlock()
				if err != nil {
					errs <- err
					return
				}
			}
			errs <- nil
		}()
	}
	for range number("workers") {
		if err := <-errs; err != nil {
			return err
		}
	}
	return nil
}
