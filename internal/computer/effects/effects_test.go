package effects_test

import (
	"context"
	"io"
	"strings"
	"testing"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/computer/effects"
)

// held is the text of each blob.
type held string

type file struct{ *strings.Reader }

func (file) Close() error { return nil }

func (h held) Open(context.Context, contract.CID, contract.BlobRef) (io.ReadSeekCloser, int64, error) {
	return file{strings.NewReader(string(h))}, int64(len(h)), nil
}

// TestNothingHidesInAnEffect: who looks at what left, or at what a service answered, sees all of it, in a bounded text.
func TestNothingHidesInAnEffect(t *testing.T) {
	for in, want := range map[string]string{
		"{\"to\":\"a\u202eb\"}\n":     "{\"to\":\"a<U+202E>b\"}\n",
		"\U000E0141":                  "<U+E0141>",
		strings.Repeat("\u00ad", 1e5): strings.Repeat("<U+00AD>", 1e5)[:256<<10],
	} {
		got, err := effects.Effects{Blobs: func() effects.Blobs { return held(in) }}.Text(t.Context(), "")
		if err != nil || got != want {
			t.Errorf("%.40q is shown as %.40q (%d bytes): %v", in, got, len(got), err)
		}
	}
}
