package ledger_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/blob"
	"choir.dev/choiros/internal/blob/disk"
	"choir.dev/choiros/internal/bus"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/ledger"
)

func openBus(t testing.TB, dir string) *bus.Bus {
	t.Helper()
	b, err := bus.Open(t.Context(), bus.Options{Dir: dir, Logger: slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn}))})
	if err != nil {
		t.Fatalf("open bus: %v", err)
	}
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Errorf("close bus: %v", err)
		}
	})
	return b
}

func openLog(t testing.TB, b *bus.Bus, opts ledger.Options) *ledger.Log {
	t.Helper()
	opts.Health, opts.FailedReads, opts.Live = b.Health, b.FailedReads, b
	l, err := ledger.Open(t.Context(), b.JetStream(), opts)
	if err != nil {
		t.Fatalf("open log: %v", err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

// tooLong is how many small events do not fit into one message.
const tooLong = 350

func prompt(text string) contract.Draft {
	return contract.Draft{Actor: contract.Person(""), Type: "prompt.submitted", Data: contract.PromptSubmitted{Text: text}}
}

func renamed(name, subject string) contract.Draft {
	return contract.Draft{Actor: contract.Person(""), Type: "computer.renamed", Subject: subject, Data: contract.ComputerRenamed{Name: name}}
}

func mustAppend(t testing.TB, l *ledger.Log, drafts ...contract.Draft) []contract.Event {
	t.Helper()
	events, err := l.Append(t.Context(), drafts...)
	if err != nil {
		t.Fatalf("append: %v", err)
	}
	return events
}

// wholeLog reads the whole log and checks that its sequences have no gaps.
func wholeLog(t testing.TB, l *ledger.Log) []contract.Event {
	t.Helper()
	var all []contract.Event
	for {
		page, err := l.Read(t.Context(), uint64(len(all)), 100)
		if err != nil {
			t.Fatalf("read after %d: %v", len(all), err)
		}
		if len(page) == 0 {
			break
		}
		for _, e := range page {
			all = append(all, e)
			if e.Sequence != uint64(len(all)) {
				t.Fatalf("event %d has sequence %d", len(all), e.Sequence)
			}
			if err := e.Validate(); err != nil {
				t.Fatalf("stored event %d is not valid: %v", e.Sequence, err)
			}
		}
	}
	if got := l.Last(); got != uint64(len(all)) {
		t.Fatalf("Last is %d, the log holds %d", got, len(all))
	}
	return all
}

func TestAppendStampsAndReadsBack(t *testing.T) {
	b := openBus(t, t.TempDir())
	cid := contract.NewCID()
	l := openLog(t, b, ledger.Options{CID: cid})
	if l.Last() != 0 || l.Epoch() != 1 {
		t.Fatalf("a new log: last %d, epoch %d; want 0, 1", l.Last(), l.Epoch())
	}
	before := time.Now().Add(-time.Second)
	d := prompt("make it blue")
	d.Actor = contract.Person("ada")
	got := mustAppend(t, l, d)[0]
	if got.Sequence != 1 || got.Epoch != 1 || got.Computer != cid || got.Source != contract.Source(cid, contract.KindPerson) || got.User != "ada" || got.Actor != "person:ada" || got.By() != d.Actor {
		t.Errorf("stamped %+v", got)
	}
	if contract.ValidID("id", got.ID) != nil || got.Time.Before(before) {
		t.Errorf("id %q, time %s", got.ID, got.Time)
	}
	more := mustAppend(t, l, renamed("a", "s"), renamed("b", "s"), prompt("x"))
	if len(more) != 3 || more[0].Sequence != 2 || more[2].Sequence != 4 {
		t.Errorf("three drafts came back as %v", more)
	}
	all := wholeLog(t, l)
	if len(all) != 4 || all[0].ID != got.ID || string(all[0].Data) != string(got.Data) || !all[0].Time.Equal(got.Time) {
		t.Errorf("read back %+v", all)
	}
	if page, err := l.Read(t.Context(), 4, 10); err != nil || len(page) != 0 {
		t.Errorf("read behind the end: %v, %v", page, err)
	}
}

func TestAppendRefusesInvalidDrafts(t *testing.T) {
	b := openBus(t, t.TempDir())
	l := openLog(t, b, ledger.Options{CID: contract.NewCID()})
	for name, tc := range map[string]struct {
		draft contract.Draft
		field string
	}{
		"unknown type":   {contract.Draft{Actor: contract.Person(""), Type: "no.such", Data: contract.PromptSubmitted{Text: "x"}}, "type"},
		"foreign kind":   {contract.Draft{Actor: contract.AssociateOf("t"), Type: "prompt.submitted", Data: contract.PromptSubmitted{Text: "x"}}, "actor"},
		"no role":        {contract.Draft{Type: "prompt.submitted", Data: contract.PromptSubmitted{Text: "x"}}, "actor"},
		"no data":        {contract.Draft{Actor: contract.Person(""), Type: "prompt.submitted"}, "data"},
		"other data":     {contract.Draft{Actor: contract.Person(""), Type: "prompt.submitted", Data: contract.ComputerRenamed{Name: "x"}}, "data"},
		"invalid data":   {prompt(""), "data.text"},
		"invalid utf8":   {prompt("\xff"), "data.text"},
		"bad id":         {contract.Draft{ID: "x", Actor: contract.Person(""), Type: "prompt.submitted", Data: contract.PromptSubmitted{Text: "x"}}, "id"},
		"expect nothing": {contract.Draft{Actor: contract.Person(""), Type: "prompt.submitted", Data: contract.PromptSubmitted{Text: "x"}, Expect: &contract.Expect{}}, "subject"},
	} {
		_, err := l.Append(t.Context(), prompt("fine"), tc.draft)
		if !fault.Is(err, fault.Invalid) {
			t.Errorf("%s: got %v, want an invalid fault", name, err)
			continue
		}
		if fe := contract.AsFieldError(err); fe == nil || fe.Field != tc.field {
			t.Errorf("%s: got %v, want field %s", name, err, tc.field)
		}
	}
	if l.Last() != 0 {
		t.Errorf("something of a refused append was stored: last is %d", l.Last())
	}
}

func TestRepeatedAppendIsOneEvent(t *testing.T) {
	dir := t.TempDir()
	b := openBus(t, dir)
	cid := contract.NewCID()
	l := openLog(t, b, ledger.Options{CID: cid})
	d := prompt("once")
	d.ID = contract.NewID()
	first := mustAppend(t, l, d)[0]
	mustAppend(t, l, prompt("other"))
	if again := mustAppend(t, l, d)[0]; again.Sequence != first.Sequence || !again.Time.Equal(first.Time) {
		t.Errorf("repeated: %+v, want %+v", again, first)
	}
	// Within one call, and after the log was opened again.
	twice := d
	twice.ID = contract.NewID()
	pair := mustAppend(t, l, twice, twice)
	if pair[0].Sequence != 3 || pair[1].Sequence != 3 {
		t.Errorf("the same draft twice in one call: %d and %d", pair[0].Sequence, pair[1].Sequence)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	l = openLog(t, b, ledger.Options{CID: cid})
	if again := mustAppend(t, l, d)[0]; again.Sequence != first.Sequence || again.Epoch != 1 {
		t.Errorf("repeated after reopening: %+v", again)
	}
	// The same id with other content is refused, whoever appends it.
	other := d
	other.Data = contract.PromptSubmitted{Text: "twice"}
	if _, err := l.Append(t.Context(), prompt("before it"), other); !fault.Is(err, fault.Conflict) {
		t.Errorf("same id, other content: %v, want a conflict", err)
	}
	if n := len(wholeLog(t, l)); n != 3 {
		t.Errorf("the log holds %d events, want 3", n)
	}
}

func TestExpect(t *testing.T) {
	b := openBus(t, t.TempDir())
	l := openLog(t, b, ledger.Options{CID: contract.NewCID()})
	expecting := func(name string, last uint64) contract.Draft {
		d := renamed(name, "document/1")
		d.Expect = &contract.Expect{Last: last}
		return d
	}
	mustAppend(t, l, prompt("x"))
	one := mustAppend(t, l, expecting("one", 0))[0]
	_, err := l.Append(t.Context(), expecting("again", 0))
	var ee *ledger.ExpectError
	if !fault.Is(err, fault.Conflict) || !errors.As(err, &ee) || ee.Last != one.Sequence || ee.Want != 0 {
		t.Fatalf("stale expectation: %v (%+v)", err, ee)
	}
	two := mustAppend(t, l, expecting("two", one.Sequence))[0]
	// Within one call, the second draft expects the sequence that the first will get.
	chain := mustAppend(t, l, expecting("three", two.Sequence), expecting("four", two.Sequence+1))
	if chain[1].Sequence != 5 {
		t.Errorf("chain: %+v", chain)
	}
	// A refused draft fails its own call only.
	if _, err := l.Append(t.Context(), prompt("not stored"), expecting("five", 1)); !fault.Is(err, fault.Conflict) {
		t.Errorf("got %v, want a conflict", err)
	}
	if n := len(wholeLog(t, l)); n != 5 {
		t.Errorf("the log holds %d events, want 5", n)
	}
	// Of many concurrent appends that expect the same sequence, one succeeds.
	var wg sync.WaitGroup
	var mu sync.Mutex
	won := 0
	for i := range 20 {
		wg.Go(func() {
			_, err := l.Append(context.Background(), expecting(fmt.Sprint("r", i), 5))
			mu.Lock()
			defer mu.Unlock()
			if err == nil {
				won++
			} else if !fault.Is(err, fault.Conflict) {
				t.Errorf("racing: %v", err)
			}
		})
	}
	wg.Wait()
	if won != 1 {
		t.Errorf("%d of 20 racing appends won", won)
	}
}

func TestLongDataTravelAsBlob(t *testing.T) {
	dir := t.TempDir()
	b := openBus(t, dir+"/nats")
	blobs, err := disk.Open(dir+"/blobs", blob.Quota{})
	if err != nil {
		t.Fatal(err)
	}
	l := openLog(t, b, ledger.Options{CID: contract.NewCID(), Blobs: blobs})
	long := contract.ToolReturned{Call: "c", Name: "bash", OK: true, Output: strings.Repeat("<long> ", 40<<10)}
	d := contract.Draft{ID: contract.NewID(), Actor: contract.AssociateOf("t"), Type: "tool.returned", Data: long}
	e := mustAppend(t, l, d)[0]
	if e.DataRef == "" || len(e.Data) != 0 {
		t.Fatalf("dataref %q, %d bytes inline", e.DataRef, len(e.Data))
	}
	if again := mustAppend(t, l, d)[0]; again.Sequence != e.Sequence {
		t.Errorf("repeated as %d, want %d", again.Sequence, e.Sequence)
	}
	p, err := l.Payload(t.Context(), wholeLog(t, l)[0])
	if err != nil {
		t.Fatal(err)
	}
	if got := p.(*contract.ToolReturned).Output; got != long.Output {
		t.Errorf("loaded %d bytes, want %d", len(got), len(long.Output))
	}
	none := openLog(t, b, ledger.Options{CID: contract.NewCID()})
	if _, err := none.Append(t.Context(), d); !fault.Is(err, fault.Missing) {
		t.Errorf("without blobs: %v", err)
	}
}

// AppendEach leaves what an earlier call has stored and adds the rest, for which each draft
// must have an id. It uses no atomic batch, however long the drafts are.
func TestAppendEachAddsTheRest(t *testing.T) {
	cid := contract.NewCID()
	b := openBus(t, t.TempDir())
	l := openLog(t, b, ledger.Options{CID: cid})
	var drafts []contract.Draft
	for i := range 3 {
		d := renamed(fmt.Sprintf("name %d", i), "")
		d.ID = contract.DeriveID("appended", fmt.Sprint(i))
		drafts = append(drafts, d)
	}
	first := mustAppend(t, l, drafts[0])
	for range 2 {
		events, err := l.AppendEach(t.Context(), drafts...)
		if err != nil {
			t.Fatal(err)
		}
		if len(events) != 3 || events[0].Sequence != first[0].Sequence || events[1].Sequence != 2 || events[2].Sequence != 3 {
			t.Errorf("AppendEach returned %+v", events)
		}
	}
	if all := wholeLog(t, l); len(all) != 3 {
		t.Errorf("the log has %d events", len(all))
	}
	if events, err := l.AppendEach(t.Context(), renamed("a", ""), renamed("b", "")); !fault.Is(err, fault.Invalid) {
		t.Errorf("drafts without ids: %v, %v", events, err)
	}
	stream, err := b.JetStream().Stream(t.Context(), bus.StreamConfig(cid, 1).Name)
	if err != nil {
		t.Fatal(err)
	}
	var many []contract.Draft
	for i := range tooLong {
		d := renamed(fmt.Sprintf("name %d", i), "")
		d.ID = contract.NewID()
		many = append(many, d)
	}
	if _, err := l.AppendEach(t.Context(), many...); err != nil {
		t.Fatal(err)
	}
	info, err := stream.Info(t.Context())
	if err != nil || info.State.Msgs < 4 || info.State.Msgs > 6 {
		t.Fatalf("%d messages, %v", info.State.Msgs, err)
	}
	for position := uint64(1); position <= info.State.Msgs; position++ {
		m, err := stream.GetMsg(t.Context(), position)
		if err != nil {
			t.Fatal(err)
		}
		if batch := m.Header.Get("Nats-Batch-Id"); batch != "" {
			t.Errorf("message %d is of batch %s", position, batch)
		}
	}
	checkChain(t, cid, wholeLog(t, l))
}
