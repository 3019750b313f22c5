package ledger_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/bus"
	"choir.dev/choiros/internal/ledger"
)

// After a power cut that truncates the newest message, or loses some of its sectors, the
// log has all drafts of a call or none, and can be continued.
func TestACallThatAPowerCutToreIsAbsent(t *testing.T) {
	dir, cid := t.TempDir(), contract.NewCID()
	var whole, before int64
	block := func(dir string) string { return blocksOf(t, dir)[0] }
	size := func() int64 {
		t.Helper()
		info, err := os.Stat(block(dir))
		if err != nil {
			t.Fatal(err)
		}
		return info.Size()
	}
	b := openBus(t, dir)
	l := openLog(t, b, ledger.Options{CID: cid})
	mustAppend(t, l, prompt("one"), prompt("two"))
	before = size()
	mustAppend(t, l, prompt("three"), prompt(strings.Repeat("four ", 300)), prompt("five"))
	whole = size()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	good, err := os.ReadFile(block(dir))
	if err != nil {
		t.Fatal(err)
	}
	good = good[:whole] // without what the server noted as it ended
	torn := map[string][]byte{}
	for at := before; at < whole; at += 1 + (whole-before)/10 {
		torn[fmt.Sprintf("cut at byte %d", at-before)] = good[:at]
	}
	for range 8 {
		bad := slices.Clone(good)
		lost := 0
		for at := before; at < whole; at = at/512*512 + 512 {
			if rand.IntN(2) == 0 || at+512 >= whole && lost == 0 {
				clear(bad[at:min(at/512*512+512, whole)])
				lost++
			}
		}
		torn[fmt.Sprintf("%d sectors lost, %v", lost, bad[before:before+4])] = bad
	}
	for what, content := range torn {
		copied := t.TempDir()
		if err := os.CopyFS(copied, os.DirFS(dir)); err != nil {
			t.Fatal(err)
		}
		indexes, err := filepath.Glob(filepath.Join(copied, "jetstream", "*", "streams", "*", "msgs", "index.db"))
		if err != nil {
			t.Fatal(err)
		}
		for _, index := range indexes { // which the server writes as it ends
			if err := os.Remove(index); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.WriteFile(block(copied), content, 0o600); err != nil {
			t.Fatal(err)
		}
		surveys, damage, err := ledger.SurveyStore(t.Context(), copied, cid, nil)
		if err != nil || len(damage) > 0 || surveys[cid].End.Sequence != 2 || surveys[cid].Broken != "" {
			t.Errorf("%s: %v, %v, %+v", what, err, damage, surveys[cid])
		}
		b := openBus(t, copied)
		l := openLog(t, b, ledger.Options{CID: cid})
		if n := len(wholeLog(t, l)); n != 2 {
			t.Errorf("%s: the log has %d events", what, n)
		}
		mustAppend(t, l, prompt("three"), prompt("four"))
		checkChain(t, cid, wholeLog(t, l))
		if err := l.Close(); err != nil {
			t.Error(err)
		}
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	}
}

// Wherever reading begins, and however much is asked for, the next events are returned:
// those of messages with one event and with many, of atomic batches, and behind positions
// without a message.
func TestReadingBeginsAnywhere(t *testing.T) {
	b := openBus(t, t.TempDir())
	cid := contract.NewCID()
	l := openLog(t, b, ledger.Options{CID: cid})
	n := 0
	for _, calls := range []int{30, 60} { // first dense ones, then sparse ones
		for range calls {
			drafts := make([]contract.Draft, 1+rand.IntN(900/calls))
			for i := range drafts {
				n++
				drafts[i] = prompt(fmt.Sprint(n, strings.Repeat(" word", rand.IntN(40))))
			}
			mustAppend(t, l, drafts...)
		}
	}
	want := wholeLog(t, l)
	checkChain(t, cid, want)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	for range 40 {
		// This Log has nothing but the log's end in memory.
		l := openLog(t, b, ledger.Options{CID: cid, Index: projected{uint64(n)}})
		for range 3 {
			after, limit := rand.IntN(n), 1+rand.IntN(60)
			page, err := l.Read(t.Context(), uint64(after), limit)
			if err != nil || len(page) == 0 || len(page) > limit {
				t.Fatalf("behind %d, %d at most: %d events, %v", after, limit, len(page), err)
			}
			for i, e := range page {
				if e.Sequence != uint64(after+i+1) || e.ID != want[after+i].ID {
					t.Fatalf("behind %d, %d at most: at %d there is event %d, %s", after, limit, i, e.Sequence, e.ID)
				}
			}
			last := int(page[len(page)-1].Sequence)
			if last == n {
				continue
			}
			page, err = l.Read(t.Context(), uint64(last), limit) // from the bookmark
			if err != nil || len(page) == 0 || page[0].ID != want[last].ID {
				t.Fatalf("behind %d: %v, %v", last, page, err)
			}
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// An event of a message that holds hundreds costs about what one costs that has a
// message of its own: to find it, and to read it.
func TestAnEventOfManyCostsWhatOneCosts(t *testing.T) {
	const n = 300
	b := openBus(t, t.TempDir())
	cost := func(together int) float64 {
		cid := contract.NewCID()
		l := openLog(t, b, ledger.Options{CID: cid})
		for at := 0; at < 2*n; at += together {
			drafts := make([]contract.Draft, together)
			for i := range drafts {
				drafts[i] = prompt(fmt.Sprint(at + i))
			}
			mustAppend(t, l, drafts...)
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		l = openLog(t, b, ledger.Options{CID: cid, Index: projected{2 * n}}) // nothing is in memory
		at := uint64(0)
		return testing.AllocsPerRun(50, func() {
			at += 7
			for _, after := range []uint64{at, at + 1} { // the second from the bookmark
				if page, err := l.Read(t.Context(), after, 1); err != nil || len(page) != 1 || page[0].Sequence != after+1 {
					t.Fatalf("behind %d: %v, %v", after, page, err)
				}
			}
		})
	}
	if one, many := cost(1), cost(n); many > 3*one {
		t.Errorf("an event of %d in a message takes %.0f allocations, one by itself %.0f", n, many, one)
	} else {
		t.Logf("%.0f allocations for one of %d, %.0f for one by itself", many, n, one)
	}
}

// A call is one message as long as one can hold it, and an atomic batch beyond that.
// The files hold one event a line.
func TestAMessageHoldsWhatIsAppendedTogether(t *testing.T) {
	dir, cid := t.TempDir(), contract.NewCID()
	b := openBus(t, dir)
	l := openLog(t, b, ledger.Options{CID: cid})
	large := func(n int) (drafts []contract.Draft) {
		for range n {
			drafts = append(drafts, prompt("a\nb"+strings.Repeat("x", 30_000)))
		}
		return drafts
	}
	var want []int // events of each message
	for _, c := range []struct {
		drafts   int
		messages []int
	}{{1, []int{1}}, {2, []int{2}}, {4, []int{4}}, {5, []int{4, 1}}, {9, []int{4, 4, 1}}} {
		mustAppend(t, l, large(c.drafts)...)
		want = append(want, c.messages...)
	}
	var got []int
	n := 0
	if damage, err := bus.ReadStore(t.Context(), dir, cid, func(m bus.Message) error {
		lines := bytes.Split(m.Data, []byte{'\n'})
		got = append(got, len(lines))
		for _, line := range lines {
			e, err := contract.UnmarshalEvent(line)
			if err != nil {
				return err
			}
			if n++; e.Sequence != uint64(n) {
				t.Errorf("event %d is at %d", e.Sequence, n)
			}
		}
		if several := m.Subject == contract.SubjectEvents(cid); several != (len(lines) > 1) {
			t.Errorf("%d events are at %s", len(lines), m.Subject)
		}
		return nil
	}); err != nil || len(damage) > 0 {
		t.Fatal(damage, err)
	}
	if !slices.Equal(got, want) {
		t.Errorf("the messages have %v events; want %v", got, want)
	}
	checkChain(t, cid, wholeLog(t, l))
}
