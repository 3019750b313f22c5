package attack_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/bus"
	"choir.dev/choiros/internal/datadir"
	"choir.dev/choiros/internal/defence"
	"choir.dev/choiros/internal/ledger"
	"choir.dev/choiros/internal/recovery"
	"choir.dev/choiros/internal/state"
)

var witnesses = []defence.Name{defence.LogHead, defence.LogEvidence}

// logRows are data directories in which something is damaged, old, another's or missing. The attack
// works if this is not noticed, and the data are used.
var logRows = []Row{
	{Number: 49, Attack: "an older copy of the log takes its place", Defences: witnesses, Run: damaged(func(t *testing.T, p *place) {
		older := filepath.Join(t.TempDir(), "older")
		must(t, os.CopyFS(older, os.DirFS(p.Path("nats"))))
		p.write(t, true, "three")
		must(t, os.RemoveAll(p.Path("nats")))
		must(t, os.CopyFS(p.Path("nats"), os.DirFS(older)))
	})},
	{Number: 49, Attack: "the log is gone, and an empty one would be begun", Defences: witnesses, Run: damaged(func(t *testing.T, p *place) {
		must(t, os.RemoveAll(p.stream(t)))
	})},
	{Number: 49, Attack: "the log is cut in the middle of an event", Defences: witnesses, Run: damaged(func(t *testing.T, p *place) {
		block := filepath.Join(p.stream(t), "msgs", "1.blk")
		st, err := os.Stat(block)
		must(t, err)
		must(t, os.Truncate(block, st.Size()-20))
	})},
	{Number: 49, Attack: "another log, as long as it was, takes its place", Defences: witnesses, Run: damaged(func(t *testing.T, p *place) {
		older := filepath.Join(t.TempDir(), "older")
		must(t, os.CopyFS(older, os.DirFS(p.Path("nats"))))
		p.write(t, true, "three")
		must(t, os.RemoveAll(p.Path("nats")))
		must(t, os.CopyFS(p.Path("nats"), os.DirFS(older)))
		p.write(t, false, "not what was said")
	})},
	{Number: 49, Attack: "an event that does not continue the chain stands at the log's end", Defences: []defence.Name{defence.LogChain}, Run: damaged(func(t *testing.T, p *place) {
		b := p.bus(t)
		e := contract.Event{SpecVersion: "1.0", ID: contract.NewID(), Source: contract.OriginOfClients(p.cid), Type: "computer.renamed", Time: time.Now().UTC(),
			DataContentType: "application/json", Data: []byte(`{"name":"forged"}`), Sequence: 3, Epoch: 1, Computer: p.cid, Prev: contract.FirstLink(p.cid)}
		raw, err := contract.MarshalEvent(e)
		must(t, err)
		_, err = b.JetStream().PublishMsg(t.Context(), &nats.Msg{Subject: contract.SubjectLog(p.cid, contract.KindPerson, e.Type), Data: raw, Header: nats.Header{"Choir-Owner": {"older"}}})
		must(t, errors.Join(err, b.Close()))
	})},
	{Number: 49, Attack: "a computer's blobs are gone, and it begins with none", Defences: []defence.Name{defence.DataParts}, Run: damaged(func(t *testing.T, p *place) {
		must(t, os.RemoveAll(p.Path("blobs", string(p.cid))))
	})},
	{Number: 49, Attack: "a computer's history is gone, and a new one would be begun", Defences: []defence.Name{defence.DataParts}, Run: damaged(func(t *testing.T, p *place) {
		must(t, os.RemoveAll(p.Computer(p.cid, "workspace")))
	})},
	{Number: 49, Attack: "the store's key is gone, and a new one would be made", Defences: []defence.Name{defence.DataParts, defence.StoreAccount, defence.LogHead}, Run: damaged(func(t *testing.T, p *place) {
		must(t, os.Remove(p.Path("keys", "account.nk")))
	})},
}

// place is a data directory with one computer, which is not awake.
type place struct {
	*datadir.Dir
	cid contract.CID
}

// damaged makes a data directory, damages it, and inspects it as a start does.
func damaged(damage func(t *testing.T, p *place)) func(*testing.T) Verdict {
	return func(t *testing.T) Verdict {
		dir, err := datadir.Open(filepath.Join(t.TempDir(), "data"))
		must(t, err)
		t.Cleanup(func() {
			if err := dir.Close(); err != nil {
				t.Error(err)
			}
		})
		p := &place{dir, contract.NewCID()}
		must(t, errors.Join(os.MkdirAll(p.Computer(p.cid, "workspace", ".git"), 0o700), os.MkdirAll(p.Path("blobs", string(p.cid)), 0o700)))
		p.write(t, true, "one", "two")
		must(t, errors.Join(os.WriteFile(p.Path("control.sqlite"), nil, 0o600), dir.Mark(p.cid), os.Remove(p.Path("control.sqlite")), dir.Forget([]string{"control.sqlite"})))
		damage(t, p)
		r, err := recovery.Inspect(t.Context(), dir)
		must(t, err)
		if !r.Whole() {
			return Verdict{false, fmt.Sprint(r.Shared, r.Computers)}
		}
		b := p.bus(t)
		l, err := ledger.Open(t.Context(), b.JetStream(), ledger.Options{CID: p.cid, Head: p.Computer(p.cid, "log.head")})
		v := Verdict{err == nil, fmt.Sprintf("it is whole; opened: %v", err)}
		if err == nil {
			err = l.Close()
		} else {
			err = nil
		}
		must(t, errors.Join(err, b.Close()))
		return v
	}
}

func (p *place) bus(t *testing.T) *bus.Bus {
	t.Helper()
	b, err := bus.Open(t.Context(), bus.Options{Dir: p.Path("nats"), KeysDir: p.Path("keys")})
	must(t, err)
	return b
}

// write appends events; kept says whether the log's head is updated with them, as usual.
func (p *place) write(t *testing.T, kept bool, names ...string) {
	t.Helper()
	b := p.bus(t)
	o := ledger.Options{CID: p.cid}
	if kept {
		o.Head = p.Computer(p.cid, "log.head")
	}
	l, err := ledger.Open(t.Context(), b.JetStream(), o)
	must(t, err)
	for _, name := range names {
		_, err := l.Append(t.Context(), contract.Draft{Actor: contract.Person(""), Type: "computer.renamed", Data: contract.ComputerRenamed{Name: name}})
		must(t, err)
	}
	if kept {
		s, err := state.Open(t.Context(), p.Computer(p.cid, "state.sqlite"))
		must(t, err)
		must(t, errors.Join(s.Recover(t.Context(), l), s.Close()))
	}
	must(t, errors.Join(l.Close(), b.Close()))
}

// stream returns the directory of the computer's log in the store.
func (p *place) stream(t *testing.T) string {
	t.Helper()
	found, err := filepath.Glob(p.Path("nats", "jetstream", "*", "streams", contract.StreamLog(p.cid)))
	if err != nil || len(found) != 1 {
		t.Fatal(found, err)
	}
	return found[0]
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
