package loops_test

import (
	"strings"
	"testing"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/dispatch/loops"
	"choir.dev/choiros/internal/tool"
)

// TestThousandsOfPicturesAreToldOnce shows that an answer of a hostile box with as many pictures as fit costs no
// more than it has bytes, and that what the loop gets stays bounded. 4 MiB take 1.3 million; here are 100,000.
func TestThousandsOfPicturesAreToldOnce(t *testing.T) {
	res := tool.Result{OK: true, Output: "seen", Pictures: make([][]byte, 100_000)}
	if err := loops.KeepPictures(t.Context(), kept{}, contract.NewCID(), &res); err != nil {
		t.Fatal(err)
	}
	if len(res.Output) > 64<<10 {
		t.Errorf("the loop and a blob get %d bytes (%d times the same sentence)", len(res.Output), strings.Count(res.Output, "at most 4"))
	}
}

// TestAWidePictureOfAnyKindIsNotShown shows docs/tools.md's "at most 8,000 pixels wide and high" for WebP.
func TestAWidePictureOfAnyKindIsNotShown(t *testing.T) {
	// VP8X: canvas of 16,777,216 × 16,777,216
	webp := []byte("RIFF\x16\x00\x00\x00WEBPVP8X\x0a\x00\x00\x00\x00\x00\x00\x00\xff\xff\xff\xff\xff\xff")
	for name, p := range map[string][]byte{"huge": webp, "fourteen bytes": []byte("RIFF\xff\xff\xff\xffWEBPVP")} {
		res := tool.Result{OK: true, Output: "seen", Pictures: [][]byte{p}}
		if err := loops.KeepPictures(t.Context(), kept{}, contract.NewCID(), &res); err != nil {
			t.Fatal(err)
		}
		if len(res.Images) > 0 {
			t.Errorf("%s is kept and shown: %+v %q", name, res.Images, res.Output)
		}
	}
}

// TestFailedCallShowsNoPictures shows that a call that failed keeps nothing, which no service would take.
func TestFailedCallShowsNoPictures(t *testing.T) {
	webp := []byte("RIFF\x1a\x00\x00\x00WEBPVP8L\x0d\x00\x00\x00\x2f\x00\x00\x00\x10\x07\x10\x11\x11\x88\x88\xfe\x07\x00")
	res := tool.Result{OK: false, Output: "refused", Pictures: [][]byte{webp}}
	if err := loops.KeepPictures(t.Context(), kept{}, contract.NewCID(), &res); err != nil {
		t.Fatal(err)
	}
	if len(res.Images) > 0 || !strings.Contains(res.Output, "are not shown") {
		t.Errorf("a failed call keeps %+v, which the gateway never shows", res.Images)
	}
}
