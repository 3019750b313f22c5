package ledger_test

import (
	"context"
	"crypto/sha256"
	"testing"

	"github.com/nats-io/nats.go"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/bus"
	"choir.dev/choiros/internal/ledger"
)

// projected is an index that covers everything, so that a log is opened without being read.
type projected struct{ last uint64 }

func (p projected) LastSeq(context.Context) (uint64, error) { return p.last, nil }
func (p projected) ByID(context.Context, string, string) (uint64, [sha256.Size]byte, bool, error) {
	return 0, [sha256.Size]byte{}, false, nil
}
func (p projected) LastBySubject(context.Context, string) (uint64, error) { return 0, nil }

// A page may come from any server that keeps a replica. If that server is behind the
// leader, no event counts as missing.
func TestAServerThatIsBehindHasNotLostAnything(t *testing.T) {
	b := openBus(t, t.TempDir())
	cid := contract.NewCID()
	first := openLog(t, b, ledger.Options{CID: cid})
	want := mustAppend(t, first, prompt("one"), prompt("two"), prompt("three"))
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	l := openLog(t, b, ledger.Options{CID: cid, Index: projected{3}})
	config := bus.StreamConfig(cid, 1)
	config.AllowDirect = false
	if _, err := b.JetStream().UpdateStream(t.Context(), config); err != nil {
		t.Fatal(err)
	}
	asked := make(chan struct{}, 100)
	behind, err := b.Conn().Subscribe("$JS.API.DIRECT.GET."+contract.StreamLog(cid), func(m *nats.Msg) {
		asked <- struct{}{}
		none := nats.NewMsg(m.Reply)
		none.Header.Set("Status", "404")
		_ = b.Conn().PublishMsg(none)
	})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = behind.Unsubscribe() }()
	for after := uint64(0); after < 3; {
		page, err := l.Read(t.Context(), after, 0)
		if err != nil || len(page) == 0 || page[0].ID != want[after].ID {
			t.Fatalf("behind %d: %v, %v", after, page, err)
		}
		after = page[len(page)-1].Sequence
	}
	if len(asked) == 0 {
		t.Error("nobody asked the server that is behind")
	}
}
