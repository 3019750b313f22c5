package chaos_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/bus"
	"choir.dev/choiros/internal/bus/embedded"
	"choir.dev/choiros/internal/ledger"
)

// TestAStreamIsChangedOverThroughPowerCuts: a stream of an earlier version, which republishes its
// log, is converted when its log is opened. The power fails at every write and flush of the
// conversion: the log is there with everything that was acknowledged, and the next process that
// opens it completes the conversion.
func TestAStreamIsChangedOverThroughPowerCuts(t *testing.T) {
	if !mountable(t) {
		return
	}
	d := newDisk(t, 128<<20)
	data := filepath.Join(d.path(), "data")
	cid := contract.NewCID()
	if err := os.Mkdir(data, 0o700); err != nil {
		t.Fatal(err)
	}
	const before = 20
	onBus(t, data, func(b *bus.Bus) {
		if _, err := b.JetStream().CreateStream(t.Context(), republishing(cid)); err != nil {
			t.Fatal(err)
		}
		onLog(t, data, b, cid, func(l *ledger.Log) { // opening the log converted it, so:
			for range before {
				appendWord(t, l)
			}
		})
		if _, err := b.JetStream().UpdateStream(t.Context(), republishing(cid)); err != nil {
			t.Fatal(err)
		}
	})
	from := d.now()
	changed, acknowledged := 0, 0
	onBus(t, data, func(b *bus.Bus) {
		onLog(t, data, b, cid, func(l *ledger.Log) {
			changed = d.now()
			appendWord(t, l)
			acknowledged = d.now()
		})
	})
	image, at := filepath.Join(d.dir, "cut.img"), filepath.Join(d.dir, "cut")
	if err := os.Mkdir(at, 0o755); err != nil {
		t.Fatal(err)
	}
	dice, halfway := random("changed over"), 0
	for cut := from; cut <= acknowledged; cut++ {
		d.failure(t, cut, 0, dice, image)
		unmount := mount(t, image, at)
		data := filepath.Join(at, "data")
		if half(t, data) {
			halfway++
		}
		damage, err := bus.ReadStore(t.Context(), filepath.Join(data, "nats"), cid, func(bus.Message) error { return nil })
		for _, bad := range damage {
			if !bad.Newest {
				err = errors.Join(err, fmt.Errorf("%v", bad))
			}
		}
		if err != nil {
			t.Errorf("cut at %d of %d: %v", cut-from, acknowledged-from, err)
		}
		onBus(t, data, func(b *bus.Bus) {
			onLog(t, data, b, cid, func(l *ledger.Log) {
				want := uint64(before)
				if cut == acknowledged {
					want++
				}
				if l.Last() < want {
					t.Errorf("cut at %d of %d: the log ends at event %d; it had %d", cut-from, acknowledged-from, l.Last(), want)
				}
				appendWord(t, l)
			})
			s, err := b.JetStream().Stream(t.Context(), contract.StreamLog(cid))
			if err != nil || s.CachedInfo().Config.RePublish != nil {
				t.Errorf("cut at %d of %d: it is not changed over: %v", cut-from, acknowledged-from, err)
			}
		})
		unmount()
	}
	t.Logf("%d cuts, of which %d were while it was changed over; %d left the new description with the sum of before", acknowledged-from+1, changed-from, halfway)
	if halfway == 0 {
		t.Error("no cut fell between the two files of the description")
	}
}

// republishing is a stream as an earlier version made it.
func republishing(cid contract.CID) jetstream.StreamConfig {
	c := bus.StreamConfig(cid, 1)
	c.RePublish = &jetstream.RePublish{Source: contract.SubjectLogAll(cid), Destination: contract.SubjectLive(cid)}
	return c
}

func onBus(t *testing.T, data string, use func(*bus.Bus)) {
	t.Helper()
	b, err := bus.Open(context.WithoutCancel(t.Context()), bus.Options{Dir: filepath.Join(data, "nats"), KeysDir: filepath.Join(data, "keys")})
	if err != nil {
		t.Fatal(err)
	}
	use(b)
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
}

func onLog(t *testing.T, data string, b *bus.Bus, cid contract.CID, use func(*ledger.Log)) {
	t.Helper()
	l, err := ledger.Open(t.Context(), b.JetStream(), ledger.Options{CID: cid, Health: b.Health, FailedReads: b.FailedReads, Live: b, Head: filepath.Join(data, "log.head")})
	if err != nil {
		t.Fatal(err)
	}
	use(l)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
}

func appendWord(t *testing.T, l *ledger.Log) {
	t.Helper()
	if _, err := l.Append(t.Context(), contract.Draft{Actor: contract.Person(""), Type: "prompt.submitted", Data: contract.PromptSubmitted{Text: "a word"}}); err != nil {
		t.Fatal(err)
	}
}

// half reports whether a stream's description and its checksum differ.
func half(t *testing.T, data string) bool {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(data, "nats", "jetstream", "*", "streams", "*", "meta.inf"))
	if err != nil || len(found) != 1 {
		t.Fatalf("%v %v", found, err)
	}
	description, err := os.ReadFile(found[0])
	if err != nil {
		t.Fatal(err)
	}
	sum, err := os.ReadFile(filepath.Join(filepath.Dir(found[0]), "meta.sum"))
	if err != nil {
		t.Fatal(err)
	}
	want, err := embedded.SumOf(filepath.Base(filepath.Dir(found[0])), description)
	return err != nil || want != string(sum)
}
