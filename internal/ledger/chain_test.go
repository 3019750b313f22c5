package ledger_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/bus"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/ledger"
)

// checkChain checks that every event carries the link of the one before it.
func checkChain(t *testing.T, cid contract.CID, events []contract.Event) contract.Link {
	t.Helper()
	link := contract.FirstLink(cid)
	for _, e := range events {
		if e.Prev != link {
			t.Fatalf("event %d carries %q, the one before it is %q", e.Sequence, e.Prev, link)
		}
		b, err := contract.Stored(e)
		if err != nil {
			t.Fatal(err)
		}
		link = contract.LinkOf(b)
	}
	return link
}

// However events are stored (one by one, as a group, as a batch, by one owner or the next),
// each carries the link of the one before it, and Append returns them as stored.
func TestEveryEventCarriesTheLinkOfTheOneBefore(t *testing.T) {
	dir, cid := t.TempDir(), contract.NewCID()
	b := openBus(t, dir)
	var returned []contract.Event
	for epoch := range 2 {
		l := openLog(t, b, ledger.Options{CID: cid})
		returned = append(returned, mustAppend(t, l, prompt(fmt.Sprintf("a <b> & c, epoch %d", epoch)))...)
		for _, n := range []int{2, tooLong} {
			var drafts []contract.Draft
			for i := range n {
				drafts = append(drafts, renamed(fmt.Sprintf("name %d", i), ""))
			}
			returned = append(returned, mustAppend(t, l, drafts...)...)
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	}
	checkChain(t, cid, returned)
	checkChain(t, cid, wholeLog(t, openLog(t, b, ledger.Options{CID: cid})))
}

// A log that was begun before events were chained continues with a chain: its next event
// carries the link of the last old one. No event without a link may follow a chained one.
func TestAnOldLogGoesOnWithAChain(t *testing.T) {
	cid := contract.NewCID()
	b := openBus(t, t.TempDir())
	if err := bus.EnsureStream(t.Context(), b.JetStream(), cid, 1); err != nil {
		t.Fatal(err)
	}
	old := func(seq uint64) []byte {
		e := contract.Event{SpecVersion: "1.0", ID: contract.NewID(), Source: contract.OriginOfClients(cid), Type: "computer.renamed",
			Time: time.Unix(1, 0).UTC(), DataContentType: "application/json", Data: json.RawMessage(`{"name":"x"}`), Sequence: seq, Epoch: 1, Computer: cid}
		raw, err := contract.MarshalEvent(e)
		if err != nil {
			t.Fatal(err)
		}
		return raw
	}
	put := func(raw []byte) {
		msg := &nats.Msg{Subject: contract.SubjectLog(cid, contract.KindPerson, "computer.renamed"), Data: raw, Header: nats.Header{"Choir-Owner": {"older"}}}
		if _, err := b.JetStream().PublishMsg(t.Context(), msg); err != nil {
			t.Fatal(err)
		}
	}
	put(old(1))
	last := old(2)
	put(last)
	l := openLog(t, b, ledger.Options{CID: cid})
	e := mustAppend(t, l, prompt("first of the chain"))[0]
	if e.Prev != contract.LinkOf(last) {
		t.Errorf("the first chained event carries %q, the last old one is %q", e.Prev, contract.LinkOf(last))
	}
	if all := wholeLog(t, l); len(all) != 3 || all[0].Prev != "" || all[1].Prev != "" {
		t.Errorf("the log reads as %+v", all)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	put(old(4))
	if l, err := ledger.Open(t.Context(), b.JetStream(), ledger.Options{CID: cid}); !fault.Is(err, fault.Damaged) {
		t.Errorf("an event without a link behind the chain: %v, %v", l, err)
	}
}

// A log that ends before its head, or holds another event there, is refused, and the head
// is left as it is. A log that goes on behind its head is accepted.
func TestALogIsHeldAgainstItsHead(t *testing.T) {
	nats, head, cid := t.TempDir(), filepath.Join(t.TempDir(), "log.head"), contract.NewCID()
	run := func(dir string, opts ledger.Options, texts ...string) error {
		t.Helper()
		b, err := bus.Open(t.Context(), bus.Options{Dir: dir})
		if err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := b.Close(); err != nil {
				t.Error(err)
			}
		}()
		opts.CID = cid
		l, err := ledger.Open(t.Context(), b.JetStream(), opts)
		if err != nil {
			return err
		}
		for _, text := range texts {
			mustAppend(t, l, prompt(text))
		}
		return l.Close()
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	headed := ledger.Options{Head: head}
	must(run(nats, headed, "one", "two"))
	older := filepath.Join(t.TempDir(), "older")
	must(os.CopyFS(older, os.DirFS(nats)))
	must(run(nats, headed, "three"))
	h, err := ledger.ReadHead(head)
	must(err)
	if h.Sequence != 3 || h.Epoch != 2 {
		t.Fatalf("after three events the head says %+v", h)
	}
	must(run(nats, ledger.Options{}, "four, which the head does not know"))
	must(run(nats, headed, "five"))
	if h, err = ledger.ReadHead(head); err != nil || h.Sequence != 5 {
		t.Fatalf("after five events the head says %+v (%v)", h, err)
	}
	said, err := os.ReadFile(head)
	must(err)
	refused := func(what string, err error) {
		t.Helper()
		if !fault.Is(err, fault.Damaged) || fault.HintOf(err) == "" {
			t.Errorf("%s: %v", what, err)
		}
		if now, err := os.ReadFile(head); err != nil || string(now) != string(said) {
			t.Errorf("%s: the head was changed (%v)", what, err)
		}
	}
	refused("an older copy", run(older, headed))
	refused("no log", run(t.TempDir(), headed))
	must(run(older, ledger.Options{}, "another three", "another four", "another five", "six"))
	refused("another log", run(older, headed))
	must(run(nats, headed))
}

// A head with one torn slot is read from the other slot; a file that holds nothing or other
// text is damage, and a missing file is reported as missing.
func TestAHeadSurvivesATornSlot(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log.head")
	b := openBus(t, t.TempDir())
	cid := contract.NewCID()
	for i := range 3 { // each close is a sync, and the other slot's turn
		l := openLog(t, b, ledger.Options{CID: cid, Head: path})
		mustAppend(t, l, prompt(fmt.Sprint(i)))
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	}
	good, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	half := len(good) / 2
	seen := map[uint64]bool{}
	for i := range 2 {
		torn := append([]byte(nil), good...)
		torn[i*half+30] ^= 1
		if err := os.WriteFile(path, torn, 0o600); err != nil {
			t.Fatal(err)
		}
		h, err := ledger.ReadHead(path)
		if err != nil {
			t.Fatalf("slot %d torn: %v", i, err)
		}
		seen[h.Sequence] = true
	}
	if !seen[3] || !seen[2] || len(seen) != 2 {
		t.Errorf("with one slot torn the head says %v; want 2 and 3", seen)
	}
	for what, content := range map[string][]byte{"empty": nil, "cut": good[:half-1], "NUL": make([]byte, len(good))} {
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
		if h, err := ledger.ReadHead(path); !fault.Is(err, fault.Damaged) {
			t.Errorf("%s: %+v, %v", what, h, err)
		}
	}
}
