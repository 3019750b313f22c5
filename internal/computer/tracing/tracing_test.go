package tracing_test

import (
	"context"
	"encoding/hex"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/blob"
	"choir.dev/choiros/internal/blob/disk"
	"choir.dev/choiros/internal/bus"
	"choir.dev/choiros/internal/computer/past"
	"choir.dev/choiros/internal/computer/tracing"
	"choir.dev/choiros/internal/ledger"
	"choir.dev/choiros/internal/state"
	"choir.dev/choiros/internal/trace/otlp"
)

// collector is one of OTLP over HTTP. It keeps what it takes.
type collector struct {
	*httptest.Server
	got chan *tracepb.TracesData

	mu   sync.Mutex
	hold chan struct{} // requests wait until it is closed
	with int           // the status of the answers
	busy int           // requests that are under way
}

func (c *collector) idle() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.busy == 0
}

func newCollector(t *testing.T) *collector {
	c := &collector{got: make(chan *tracepb.TracesData, 100), with: http.StatusOK}
	c.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		var m tracepb.TracesData
		if err := errors.Join(err, proto.Unmarshal(body, &m)); err != nil {
			t.Error(err)
		}
		c.mu.Lock()
		hold, with := c.hold, c.with
		c.busy++
		c.mu.Unlock()
		defer func() {
			c.mu.Lock()
			c.busy--
			c.mu.Unlock()
		}()
		if hold != nil {
			select {
			case <-hold:
			case <-r.Context().Done():
				return
			}
		}
		w.WriteHeader(with)
		if with == http.StatusOK {
			c.got <- &m
		}
	}))
	t.Cleanup(c.Close)
	return c
}

func (c *collector) answer(hold chan struct{}, with int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.hold, c.with = hold, with
}

// next is the run that the collector takes next, and the ids of its spans.
func (c *collector) next(t *testing.T) (run string, ids []string) {
	t.Helper()
	select {
	case m := <-c.got:
		for _, s := range m.ResourceSpans[0].ScopeSpans[0].Spans {
			ids = append(ids, hex.EncodeToString(s.TraceId)+hex.EncodeToString(s.SpanId)+hex.EncodeToString(s.ParentSpanId))
			for _, a := range s.Attributes {
				if a.Key == "choir.run.id" {
					run = a.Value.GetStringValue()
				}
			}
		}
		return run, ids
	case <-time.After(30 * time.Second):
		t.Fatal("nothing came")
		return "", nil
	}
}

// world is a computer's log, and what exports its runs.
type world struct {
	t    *testing.T
	past *past.Past
	log  *ledger.Log
	cid  contract.CID
	at   *collector
	file string

	part *tracing.Tracing
	stop func()
}

func open(t *testing.T) *world {
	t.Helper()
	dir := t.TempDir()
	b, err := bus.Open(t.Context(), bus.Options{Dir: filepath.Join(dir, "nats"), Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	blobs, err := disk.Open(filepath.Join(dir, "blobs"), blob.Quota{})
	if err != nil {
		t.Fatal(err)
	}
	s, err := state.Open(t.Context(), filepath.Join(dir, "state.sqlite"))
	if err != nil {
		t.Fatal(err)
	}
	w := &world{t: t, cid: contract.NewCID(), at: newCollector(t), file: filepath.Join(dir, "traced")}
	if w.log, err = ledger.Open(t.Context(), b.JetStream(), ledger.Options{CID: w.cid, Blobs: blobs, Index: s}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(w.log.Close(), s.Close(), b.Close()); err != nil {
			t.Error(err)
		}
	})
	w.past = past.New(w.cid, w.log, s, blobs, nil)
	return w
}

// start begins exporting, as a computer does that wakes.
func (w *world) start() {
	w.t.Helper()
	x, err := otlp.New(otlp.Options{Endpoint: w.at.URL, Patience: 20 * time.Second})
	if err != nil {
		w.t.Fatal(err)
	}
	w.part = tracing.New(tracing.Options{CID: w.cid, Past: w.past, Exporter: x, File: w.file, Pause: time.Millisecond, Logger: slog.New(slog.DiscardHandler)})
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- w.part.Part().Run(ctx) }()
	w.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			w.t.Error(err)
		}
	})
	w.t.Cleanup(w.stop)
	w.until("it has begun, for it knows where", func() bool { _, err := os.Stat(w.file); return err == nil })
}

// until waits for a condition.
func (w *world) until(what string, holds func() bool) {
	w.t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !holds(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			w.t.Fatalf("it is not so that %s", what)
		}
	}
}

// noted says whether the file has the log's end.
func (w *world) noted() bool {
	b, err := os.ReadFile(w.file)
	return err == nil && strings.TrimSpace(string(b)) == strconv.FormatUint(w.log.Last(), 10)
}

// end stops exporting once it has noted the last run.
func (w *world) end() {
	w.t.Helper()
	w.until("the last run is noted", w.noted)
	w.stop()
}

// run records a whole run, in which a Director asks a model.
func (w *world) run() string {
	w.t.Helper()
	prompt := contract.NewID()
	run := contract.DeriveID(prompt, "run")
	if _, err := w.log.Append(w.t.Context(),
		contract.Draft{ID: prompt, Actor: contract.Person(""), Type: "prompt.submitted", Run: run, Data: contract.PromptSubmitted{Text: "words"}},
		contract.Draft{Actor: contract.System(), Type: "run.started", Run: run, Data: contract.RunStarted{Document: contract.NewID(), Provider: "p", Model: "m"}},
		contract.Draft{Actor: contract.System(), Type: "usage.metered", Run: run, Data: contract.UsageMetered{Call: contract.NewID(), Role: "director", Provider: "p", Model: "m", Outcome: "ok"}},
		contract.Draft{Actor: contract.System(), Type: "run.reported", Run: run, Data: contract.RunReported{Status: contract.RunDone, Summary: "words", Verified: contract.VerificationUnknown}},
	); err != nil {
		w.t.Fatal(err)
	}
	return run
}

func (w *world) expect(run string) []string {
	w.t.Helper()
	got, ids := w.at.next(w.t)
	if got != run || len(ids) != 3 {
		w.t.Fatalf("the collector has %d spans of %s; want those of %s", len(ids), got, run)
	}
	return ids
}

// TestARunIsExportedOnce shows that a run is exported when it has ended, also if that was while nothing ran, and
// not again after a restart; that one which is sent again all the same has the same ids; and that what ended
// while tracing was off never is.
func TestARunIsExportedOnce(t *testing.T) {
	w := open(t)
	w.run() // before tracing was switched on
	w.start()
	first := w.run()
	ids := w.expect(first)
	w.end()

	second, third := w.run(), w.run() // while choir was down
	w.start()
	w.expect(second)
	w.expect(third)
	w.expect(w.run())
	w.end()

	if err := os.WriteFile(w.file, []byte("4\n"), 0o600); err != nil { // a kill between the collector's answer and the note of it
		t.Fatal(err)
	}
	w.start()
	if again := w.expect(first); !slices.Equal(again, ids) {
		t.Errorf("sent again, the run has the ids %v; it had %v", again, ids)
	}
	w.expect(second)
	w.expect(third)
	w.at.next(t)
	w.end()

	if err := tracing.Off(w.file); err != nil {
		t.Fatal(err)
	}
	w.run()
	w.start()
	w.expect(w.run())
	w.end()

	for _, damaged := range []string{"", "x", "-1", strings.Repeat("9", 100)} {
		if err := os.WriteFile(w.file, []byte(damaged), 0o600); err != nil {
			t.Fatal(err)
		}
		w.start()
		w.until("a damaged file is written anew", w.noted)
		w.expect(w.run())
		w.end()
	}
}

// TestACollectorHoldsNothingUp shows that runs go on while a collector hangs or fails, that the part says for
// what it waits, that it ends at once with its computer, and that every run comes in the end, in order; and that
// one which the collector will not have keeps no other back.
func TestACollectorHoldsNothingUp(t *testing.T) {
	w := open(t)
	hold := make(chan struct{})
	w.at.answer(hold, http.StatusOK)
	w.start()
	var runs []string
	for range 3 {
		runs = append(runs, w.run())
	}
	w.until("a request is under way", func() bool { return !w.at.idle() })
	w.stop() // in the middle of it
	w.until("the collector has noticed", w.at.idle)
	w.start()
	close(hold)
	for _, run := range runs {
		w.expect(run)
	}

	w.at.answer(nil, http.StatusServiceUnavailable)
	late := w.run()
	w.until("it says what it waits for", func() bool { return strings.Contains(w.part.Part().Waits(), "answers 503") })
	w.at.answer(nil, http.StatusOK)
	w.expect(late)

	w.at.answer(nil, http.StatusBadRequest)
	w.run()
	w.until("it goes on behind a run that the collector refuses", w.noted)
	w.at.answer(nil, http.StatusOK)
	w.expect(w.run())
	if why := w.part.Part().Waits(); why != "" {
		t.Errorf("it still says that it waits for %q", why)
	}
}
