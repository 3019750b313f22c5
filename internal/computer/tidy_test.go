package computer

import (
	"strings"
	"testing"
	"time"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/computer/upkeep"
	"choir.dev/choiros/internal/document"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/state"
)

func TestTidyDropsOnlyBlobsThatNothingRefersTo(t *testing.T) {
	d := open(t)
	d.upkeep = d.newUpkeep()
	ctx := t.Context()
	orphan, _, err := d.blobs.Put(ctx, d.cid, strings.NewReader("nobody's"))
	if err != nil {
		t.Fatal(err)
	}
	body := strings.Repeat("long enough to be a blob of its own\n", 4096)
	d.create(body)
	d.settle()
	if err := d.upkeep.Tidy(ctx, upkeep.BlobGrace); err != nil {
		t.Fatal(err)
	}
	if _, err := d.blobs.Stat(ctx, d.cid, orphan); err != nil {
		t.Errorf("a young blob was dropped: %v", err)
	}
	if err := d.upkeep.Tidy(ctx, 0); err != nil {
		t.Fatal(err)
	}
	if _, err := d.blobs.Stat(ctx, d.cid, orphan); !fault.Is(err, fault.NotFound) {
		t.Errorf("the orphan is still there: %v", err)
	}
	var got state.Revision
	if got = d.head(); got.Body != body {
		t.Errorf("the document's body is gone: %d bytes of %d", len(got.Body), len(body))
	}
	events, err := d.log.Read(ctx, 0, 500)
	if err != nil {
		t.Fatal(err)
	}
	blobs := 0
	for _, e := range events {
		if e.DataRef != "" {
			blobs++
			if _, err := d.log.Payload(ctx, e); err != nil {
				t.Errorf("%s at %d has lost its data: %v", e.Type, e.Sequence, err)
			}
		}
	}
	if blobs == 0 {
		t.Errorf("no event had its data in a blob (%d bytes inline at most)", contract.MaxInlineData)
	}
}

// TestADaysBytesAreExact shows that the count of a day's bytes after a restart equals what the log
// contains: in bytes rather than letters, and including data in blobs.
func TestADaysBytesAreExact(t *testing.T) {
	d := open(t)
	d.machine = &Machine{Blobs: d.blobs}
	ctx := t.Context()
	d.create("mine\n")
	d.settle()
	me := document.Author{Name: "ana", By: contract.Person("u1")}
	d.revise("ä short text\n", me)
	d.settle()
	d.revise(strings.Repeat("ä long text that travels as a blob\n", 4000), me)
	d.settle()
	events, err := d.log.Read(ctx, 0, 500)
	if err != nil {
		t.Fatal(err)
	}
	count, sum, blobs := 0, int64(0), []contract.BlobRef{}
	for _, e := range events {
		if e.Source != contract.Source(d.cid, contract.KindPerson) {
			continue
		}
		data, err := d.log.Data(ctx, e)
		if err != nil {
			t.Fatal(err)
		}
		count, sum = count+1, sum+int64(len(data))
		if e.DataRef != "" {
			blobs = append(blobs, e.DataRef)
		}
	}
	if count < 2 || len(blobs) != 1 {
		t.Fatalf("%d events, %d blobs", count, len(blobs))
	}
	n, bytes, err := d.Appended(ctx, time.Now().Add(-time.Hour))
	if err != nil || n != count || bytes != sum {
		t.Errorf("%d events with %d bytes, %v; the log holds %d with %d", n, bytes, err, count, sum)
	}
	size, err := d.blobs.Stat(ctx, d.cid, blobs[0])
	if err != nil {
		t.Fatal(err)
	}
	if err := d.blobs.Remove(ctx, d.cid); err != nil {
		t.Fatal(err)
	}
	if _, bytes, err := d.Appended(ctx, time.Now().Add(-time.Hour)); err != nil || bytes != sum-size+contract.MaxTurn {
		t.Errorf("%d bytes, %v, without the blob; it may have been any size", bytes, err)
	}
}
