package computer

import (
	"strings"
	"testing"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/document"
	"choir.dev/choiros/internal/fault"
)

func TestTidyDropsOnlyBlobsThatNothingRefersTo(t *testing.T) {
	d := open(t)
	d.host = &Host{Options: Options{Blobs: d.blobs}}
	ctx := t.Context()
	orphan, _, err := d.blobs.Put(ctx, d.cid, strings.NewReader("nobody's"))
	if err != nil {
		t.Fatal(err)
	}
	body := strings.Repeat("long enough to be a blob of its own\n", 4096)
	d.create(body)
	d.settle()
	if err := d.tidy(ctx, blobGrace); err != nil {
		t.Fatal(err)
	}
	if _, err := d.blobs.Stat(ctx, d.cid, orphan); err != nil {
		t.Errorf("a young blob was dropped: %v", err)
	}
	if err := d.tidy(ctx, 0); err != nil {
		t.Fatal(err)
	}
	if _, err := d.blobs.Stat(ctx, d.cid, orphan); !fault.Is(err, fault.NotFound) {
		t.Errorf("the orphan is still there: %v", err)
	}
	var got document.Revision
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
