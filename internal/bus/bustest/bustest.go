// Package bustest tests, through the ledger that uses it, what every bus must do for the
// log, whatever server it uses.
package bustest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/bus"
	"choir.dev/choiros/internal/ledger"
)

const patience = 20 * time.Second

// Run tests a bus. open opens it, and after it was closed opens it again as the next
// process would.
func Run(t *testing.T, open func(t testing.TB) *bus.Bus) {
	b := open(t)
	defer func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	}()
	again := func(t *testing.T) {
		t.Helper()
		if err := b.Close(); err != nil {
			t.Fatal(err)
		}
		b = open(t)
	}
	t.Run("the stream is what was asked for", func(t *testing.T) { stream(t, b) })
	t.Run("what was acknowledged is there for the next process", func(t *testing.T) {
		cid := contract.NewCID()
		want := fill(t, b, cid)
		again(t)
		if got := all(t, log(t, b, cid)); !bytes.Equal(got, want) {
			t.Errorf("got\n%s\nwant\n%s", got, want)
		}
	})
	t.Run("a call is stored whole or not at all", func(t *testing.T) { whole(t, b) })
	t.Run("one owner at a time", func(t *testing.T) { fenced(t, b) })
	t.Run("live, and only one's own", func(t *testing.T) { live(t, b) })
	t.Run("refilled as it was", func(t *testing.T) { refilled(t, b) })
	t.Run("it says that it works", func(t *testing.T) {
		if err := b.Health(); err != nil {
			t.Error(err)
		}
	})
}

func log(t testing.TB, b *bus.Bus, cid contract.CID) *ledger.Log {
	t.Helper()
	l, err := ledger.Open(t.Context(), b.JetStream(), ledger.Options{CID: cid, Live: b, Ensure: b.EnsureStream, Health: b.Health, FailedReads: b.FailedReads})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	return l
}

func draft(text string) contract.Draft {
	return contract.Draft{Actor: contract.Person(""), Type: "prompt.submitted", Data: &contract.PromptSubmitted{Text: text}}
}

// fill appends events one by one, concurrently, and several in a call; it returns the log's
// content.
func fill(t testing.TB, b *bus.Bus, cid contract.CID) []byte {
	t.Helper()
	l := log(t, b, cid)
	if _, err := l.Append(t.Context(), draft("one")); err != nil {
		t.Fatal(err)
	}
	failed := make(chan error, 20)
	for i := range 20 {
		go func() {
			_, err := l.Append(context.Background(), draft(fmt.Sprint("at once ", i)))
			failed <- err
		}()
	}
	for range 20 {
		if err := <-failed; err != nil {
			t.Fatal(err)
		}
	}
	if _, err := l.Append(t.Context(), draft("two"), draft("three"), draft("four")); err != nil {
		t.Fatal(err)
	}
	if l.Last() != 24 {
		t.Fatalf("the log ends at %d, want 24", l.Last())
	}
	return all(t, l)
}

// all reads a log from its beginning.
func all(t testing.TB, l *ledger.Log) []byte {
	t.Helper()
	var out bytes.Buffer
	for after := uint64(0); after < l.Last(); {
		page, err := l.Read(t.Context(), after, 7)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range page {
			fmt.Fprintf(&out, "%d %d %s %s\n", e.Sequence, e.Epoch, e.ID, e.Data)
			after = e.Sequence
		}
	}
	return out.Bytes()
}

func stream(t *testing.T, b *bus.Bus) {
	cid := contract.NewCID()
	if is, err := b.Serves(t.Context(), cid); is || err != nil {
		t.Fatalf("before it was made: %v, %v", is, err)
	}
	if err := bus.EnsureStream(t.Context(), b.JetStream(), cid, b.Replicas()); err != nil {
		t.Fatal(err)
	}
	if is, err := b.Serves(t.Context(), cid); !is || err != nil {
		t.Fatalf("after it was made: %v, %v", is, err)
	}
	s, err := b.JetStream().Stream(t.Context(), contract.StreamLog(cid))
	if err != nil {
		t.Fatal(err)
	}
	c := s.CachedInfo().Config
	if c.Replicas != b.Replicas() || c.Storage != jetstream.FileStorage || !c.DenyDelete || c.MaxMsgs != -1 || c.MaxBytes != -1 || c.MaxAge != 0 || c.Discard != jetstream.DiscardNew || !c.AllowAtomicPublish || !c.AllowDirect || c.RePublish != nil {
		t.Errorf("%+v", c)
	}
}

func whole(t *testing.T, b *bus.Bus) {
	l := log(t, b, contract.NewCID())
	if _, err := l.Append(t.Context(), draft("one")); err != nil {
		t.Fatal(err)
	}
	behind := uint64(17) // there is no such event
	second := draft("three")
	second.Subject, second.Expect = "s", &contract.Expect{Last: behind}
	if _, err := l.Append(t.Context(), draft("two"), second); err == nil {
		t.Error("a call was stored although one of its events could not be")
	}
	if got := all(t, l); bytes.Count(got, []byte("\n")) != 1 {
		t.Errorf("%s", got)
	}
	// The ledger relies on the server to refuse a message that does not follow the named
	// end.
	msg := nats.NewMsg("log." + string(l.CID()) + ".user.x")
	if _, err := b.JetStream().PublishMsg(t.Context(), msg, jetstream.WithExpectLastSequence(99)); err == nil {
		t.Error("the server stored a message behind another end than was named")
	}
}

func fenced(t *testing.T, b *bus.Bus) {
	cid := contract.NewCID()
	first := log(t, b, cid)
	if _, err := first.Append(t.Context(), draft("one")); err != nil {
		t.Fatal(err)
	}
	second := log(t, b, cid)
	if _, err := second.Append(t.Context(), draft("two")); err != nil {
		t.Fatal(err)
	}
	if _, err := first.Append(t.Context(), draft("three")); !errors.Is(err, ledger.ErrFenced) {
		t.Errorf("the owner of before: %v", err)
	}
	if second.Last() != 2 || second.Epoch() <= first.Epoch() {
		t.Errorf("ends at %d in epoch %d, before %d", second.Last(), second.Epoch(), first.Epoch())
	}
}

func live(t *testing.T, b *bus.Bus) {
	cid, other := contract.NewCID(), contract.NewCID()
	sub, err := b.Conn().SubscribeSync(contract.SubjectLive(cid))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = sub.Unsubscribe() }()
	if _, err := log(t, b, other).Append(t.Context(), draft("another's")); err != nil {
		t.Fatal(err)
	}
	if _, err := log(t, b, cid).Append(t.Context(), draft("mine")); err != nil {
		t.Fatal(err)
	}
	msg, err := sub.NextMsg(patience)
	if err != nil || !bytes.Contains(msg.Data, []byte("mine")) {
		t.Errorf("%v %v", msg, err)
	}
}

func refilled(t *testing.T, b *bus.Bus) {
	cid := contract.NewCID()
	r, err := b.Refill(t.Context(), cid)
	if err != nil {
		t.Fatal(err)
	}
	const n = 1100 // more than a batch
	subject := "log." + string(cid) + ".user.x"
	for i := range n {
		body := []byte(strconv.Itoa(i))
		if i == 0 {
			body = bytes.Repeat([]byte("x"), 150<<10) // an event of the largest size
		}
		if err := r.Add(t.Context(), subject, nil, body); err != nil {
			t.Fatal(err)
		}
	}
	if err := r.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	s, err := b.JetStream().Stream(t.Context(), contract.StreamLog(cid))
	if err != nil {
		t.Fatal(err)
	}
	for _, at := range []uint64{1, 2, n} {
		m, err := s.GetMsg(t.Context(), at)
		if err != nil || (at > 1 && string(m.Data) != strconv.Itoa(int(at-1))) || (at == 1 && len(m.Data) != 150<<10) {
			t.Errorf("message %d: %v", at, err)
		}
	}
}
