package ledger_test

import (
	"bytes"
	"iter"
	"os"
	"testing"

	"github.com/nats-io/nats.go"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/bus"
	"choir.dev/choiros/internal/ledger"
)

// A hole in the store is filled from the rows, but only with rows that continue the chain
// and whose digest is right; the log ends where neither source has the next event.
func TestAHoleIsFilledOnlyWithWhatContinuesTheChain(t *testing.T) {
	dir, cid := t.TempDir(), contract.NewCID()
	heads := fillStore(t, dir, cid)
	var whole []contract.Event
	if _, err := bus.ReadStore(t.Context(), dir, "", func(m bus.Message) error {
		for line := range bytes.Lines(m.Data) {
			e, err := contract.UnmarshalEvent(bytes.TrimSuffix(line, []byte{'\n'}))
			if err != nil {
				return err
			}
			whole = append(whole, e)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	block := blocksOf(t, dir)[0]
	b, err := os.ReadFile(block)
	if err != nil {
		t.Fatal(err)
	}
	b[len(b)/2] ^= 1
	if err := os.WriteFile(block, b, 0o600); err != nil {
		t.Fatal(err)
	}
	merge := func(rows []ledger.Row) ledger.Recovered {
		t.Helper()
		source := iter.Seq2[ledger.Row, error](func(yield func(ledger.Row, error) bool) {
			for _, r := range rows {
				if !yield(r, nil) {
					return
				}
			}
		})
		var got []contract.Event
		k, err := ledger.Merge(t.Context(), dir, cid, source, func(_ string, _ nats.Header, data []byte) error {
			e, err := contract.UnmarshalEvent(data)
			got = append(got, e)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		checkChain(t, cid, got)
		return k
	}
	rows := make([]ledger.Row, len(whole))
	for i, e := range whole {
		rows[i] = ledger.Row{Event: e, Sound: true}
	}
	k := merge(rows)
	if k.End != heads[cid] || k.FromRows != 1 || k.FromStore != uint64(len(whole)-1) {
		t.Fatalf("with every row: %+v; want the end %+v and one event of the rows", k, heads[cid])
	}
	hole := merge(nil).End.Sequence
	if hole == 0 || hole >= heads[cid].Sequence {
		t.Fatalf("without rows the log ends at %d", hole)
	}
	for what, spoil := range map[string]func(r *ledger.Row){
		"another content":     func(r *ledger.Row) { r.Sound = false },
		"another predecessor": func(r *ledger.Row) { r.Event.Prev = contract.FirstLink(contract.NewCID()) },
		"no link":             func(r *ledger.Row) { r.Event.Prev = "" },
	} {
		bad := append([]ledger.Row(nil), rows...)
		spoil(&bad[hole])
		if k := merge(bad); k.End.Sequence != hole || k.FromRows != 0 {
			t.Errorf("%s: %+v; want an end at %d", what, k, hole)
		}
	}
}
