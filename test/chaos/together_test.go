package chaos_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/bus"
	"choir.dev/choiros/internal/datadir"
	"choir.dev/choiros/internal/ledger"
	"choir.dev/choiros/internal/recovery"
)

// TestCallsAreWholeThroughPowerCuts: many callers append at once, one event or several, sometimes
// more than fit into a message. The power fails at many instants: everything that was acknowledged
// before is there, each call is there whole or not at all, and the log is undamaged and can be
// continued.
func TestCallsAreWholeThroughPowerCuts(t *testing.T) {
	if !mountable(t) {
		return
	}
	d := newDisk(t, 256<<20)
	data := filepath.Join(d.path(), "data")
	if err := os.Mkdir(data, 0o700); err != nil {
		t.Fatal(err)
	}
	cid := contract.NewCID()
	var calls []call
	from := 0
	onBus(t, data, func(b *bus.Bus) {
		onLog(t, data, b, cid, func(l *ledger.Log) {
			appendWord(t, l)
			from = d.now()
			calls = callers(t, d, l, 8, 40)
		})
	})
	until := d.now()
	image, at := filepath.Join(d.dir, "cut.img"), filepath.Join(d.dir, "cut")
	if err := os.Mkdir(at, 0o755); err != nil {
		t.Fatal(err)
	}
	dice, images := random("calls together"), 24
	if long > 0 {
		images = 300
	}
	kept, gone := 0, 0
	for i := range images {
		cut := from + dice.IntN(until-from)
		if i%2 == 0 { // right after an acknowledgement, where a lost write shows
			cut = calls[dice.IntN(len(calls))].acknowledged
		}
		d.failure(t, cut, 0, dice, image)
		unmount := mount(t, image, at)
		k, g := wholeCalls(t, filepath.Join(at, "data"), cid, calls, cut)
		kept, gone = kept+k, gone+g
		unmount()
	}
	t.Logf("%d cuts among %d writes and flushes: %d calls were there, %d were not", images, until-from, kept, gone)
	if gone == 0 {
		t.Error("no cut fell before the end of any call")
	}
}

// call is a call of Append, and the instant at which it was answered.
type call struct {
	name         string
	drafts       int
	acknowledged int
}

// callers makes several goroutines append events at once, with texts that name their call.
func callers(t *testing.T, d *disk, l *ledger.Log, n, each int) []call {
	var mu sync.Mutex
	var out []call
	var all sync.WaitGroup
	for c := range n {
		all.Go(func() {
			own := random(fmt.Sprint("caller ", c))
			for i := range each {
				name, drafts := fmt.Sprintf("%d/%d", c, i), draftsOf(own, i)
				for j := range drafts {
					drafts[j].Data = contract.PromptSubmitted{Text: fmt.Sprint(name, " ", strings.Repeat("x", own.IntN(900)))}
					if i%20 == 19 {
						drafts[j].Data = contract.PromptSubmitted{Text: fmt.Sprint(name, " ", strings.Repeat("x", 20_000))}
					}
				}
				if _, err := l.Append(t.Context(), drafts...); err != nil {
					t.Errorf("call %s: %v", name, err)
					return
				}
				mu.Lock()
				out = append(out, call{name, len(drafts), d.now()})
				mu.Unlock()
			}
		})
	}
	all.Wait()
	return out
}

func draftsOf(dice *rand.Rand, i int) []contract.Draft {
	drafts := make([]contract.Draft, 1+dice.IntN(5))
	if i%20 == 19 { // too long for one message
		drafts = make([]contract.Draft, 9)
	}
	for j := range drafts {
		drafts[j] = contract.Draft{Actor: contract.Person(""), Type: "prompt.submitted"}
	}
	return drafts
}

// wholeCalls checks what a power cut left, and counts the calls that are there.
func wholeCalls(t *testing.T, data string, cid contract.CID, calls []call, cut int) (kept, gone int) {
	t.Helper()
	damage, err := bus.ReadStore(t.Context(), filepath.Join(data, "nats"), cid, func(bus.Message) error { return nil })
	for _, bad := range damage {
		if !bad.Newest {
			err = errors.Join(err, fmt.Errorf("%v", bad))
		}
	}
	if err != nil {
		t.Errorf("cut at %d: %v", cut, err)
	}
	there := map[string]int{}
	onBus(t, data, func(b *bus.Bus) {
		onLog(t, data, b, cid, func(l *ledger.Log) {
			for after := uint64(0); after < l.Last(); {
				page, err := l.Read(t.Context(), after, 0)
				if err != nil {
					t.Fatalf("cut at %d: %v", cut, err)
				}
				for _, e := range page {
					p, err := l.Payload(t.Context(), e)
					if err != nil {
						t.Fatal(err)
					}
					name, _, _ := strings.Cut(p.(*contract.PromptSubmitted).Text, " ")
					there[name]++
					after = e.Sequence
				}
			}
			appendWord(t, l)
		})
	})
	for _, c := range calls {
		switch n := there[c.name]; {
		case n == c.drafts:
			kept++
		case n > 0:
			t.Errorf("cut at %d: %d of %d events of call %s are there", cut, n, c.drafts, c.name)
		case c.acknowledged <= cut:
			t.Errorf("cut at %d: call %s was acknowledged at %d and is not there", cut, c.name, c.acknowledged)
		default:
			gone++
		}
	}
	return kept, gone
}

// TestAnOldDirectoryIsRaisedThroughPowerCuts: in a data directory of the previous version, a
// message of several events is written only after the directory's version on disk keeps the
// previous program away, whenever the power fails.
func TestAnOldDirectoryIsRaisedThroughPowerCuts(t *testing.T) {
	if !mountable(t) {
		return
	}
	d := newDisk(t, 128<<20)
	data := filepath.Join(d.path(), "data")
	cid := contract.NewCID()
	open := func(data string) *datadir.Dir {
		t.Helper()
		dir, err := datadir.Open(data)
		if err != nil {
			t.Fatal(err)
		}
		return dir
	}
	dir := open(data)
	if err := os.WriteFile(dir.Path("control.sqlite"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	onBus(t, data, func(b *bus.Bus) {
		onLog(t, data, b, cid, func(l *ledger.Log) { appendWord(t, l) })
	})
	if err := errors.Join(dir.Commit(), datadir.WriteFile(dir.Path("version"), []byte("4\n"), 0o600), dir.Close()); err != nil {
		t.Fatal(err)
	}
	from := d.now()
	dir = open(data)
	report, err := recovery.Inspect(t.Context(), dir)
	if err == nil {
		err = recovery.Arrange(dir, report)
	}
	if err != nil {
		t.Fatal(err)
	}
	onBus(t, data, func(b *bus.Bus) {
		onLog(t, data, b, cid, func(l *ledger.Log) { _ = callers(t, d, l, 2, 3) })
	})
	if err := dir.Close(); err != nil {
		t.Fatal(err)
	}
	image, at := filepath.Join(d.dir, "cut.img"), filepath.Join(d.dir, "cut")
	if err := os.Mkdir(at, 0o755); err != nil {
		t.Fatal(err)
	}
	dice, seen := random("raised"), map[string]int{}
	for cut := from; cut <= d.now(); cut++ {
		d.failure(t, cut, 0, dice, image)
		unmount := mount(t, image, at)
		data := filepath.Join(at, "data")
		version, err := os.ReadFile(filepath.Join(data, "version"))
		if err != nil {
			t.Fatal(err)
		}
		several := false
		if _, err := bus.ReadStore(t.Context(), filepath.Join(data, "nats"), cid, func(m bus.Message) error {
			several = several || m.Subject == contract.SubjectEvents(cid)
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		switch v := string(version); {
		case v != "4\n" && v != fmt.Sprintln(datadir.Format):
			t.Errorf("cut at %d: the version is %q", cut-from, v)
		case v == "4\n" && several:
			t.Errorf("cut at %d: the directory is of version 4, and a message of several events is in it", cut-from)
		}
		seen[fmt.Sprintf("%q, several %v", version, several)]++
		if err := open(data).Close(); err != nil {
			t.Error(err)
		}
		unmount()
	}
	t.Logf("%v", seen)
	if len(seen) != 3 {
		t.Error("the cuts did not meet the old directory, the raised one, and the one that is gone on with")
	}
}
