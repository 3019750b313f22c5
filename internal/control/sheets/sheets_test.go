package sheets

import (
	"fmt"
	"strings"
	"testing"

	"rsc.io/qr"
)

// TestACodeIsDrawnModuleByModule draws the path again: what is dark in it is what the library says, within a free edge of
// four modules.
func TestACodeIsDrawnModuleByModule(t *testing.T) {
	const text = "http://console.choir.localhost:7700/claim?again#0123456789012345678901234567890123456789012"
	got, err := code(text)
	if err != nil {
		t.Fatal(err)
	}
	want, err := qr.Encode(text, qr.M)
	if err != nil {
		t.Fatal(err)
	}
	if got.Size != want.Size+8 {
		t.Errorf("size %d, want %d and the edge", got.Size, want.Size)
	}
	dark := map[[2]int]bool{}
	for _, part := range strings.Split(strings.TrimPrefix(got.Path, "M"), "M") {
		var x, y, n, back int
		if _, err := fmt.Sscanf(part, "%d %dh%dv1h-%dz", &x, &y, &n, &back); err != nil || n != back {
			t.Fatalf("a part of the path is %q: %v", part, err)
		}
		for i := range n {
			dark[[2]int{x + i, y}] = true
		}
	}
	for y := range got.Size {
		for x := range got.Size {
			if dark[[2]int{x, y}] != want.Black(x-4, y-4) {
				t.Fatalf("the module at %d, %d is dark: %v", x, y, dark[[2]int{x, y}])
			}
		}
	}
	if _, err := code(strings.Repeat("x", 4000)); err == nil {
		t.Error("a code of 4,000 letters is made")
	}
}

// TestADeviceIsSaidInOurWords tries what browsers say of themselves, and what nobody would believe.
func TestADeviceIsSaidInOurWords(t *testing.T) {
	for agent, want := range map[string]string{
		"Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0":                                                                     "Firefox on Linux",
		"Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/141.0.0.0 Safari/537.36 Edg/141.0.0.0":              "Edge on Windows",
		"Mozilla/5.0 (Macintosh; Intel Mac OS X 10_15_7) AppleWebKit/605.1.15 (KHTML, like Gecko) Version/18.5 Safari/605.1.15":                      "Safari on Mac",
		"Mozilla/5.0 (iPhone; CPU iPhone OS 18_5 like Mac OS X) AppleWebKit/605.1.15 (KHTML, like Gecko) CriOS/141.0 Mobile/15E148 Safari/604.1":     "Chrome on iPhone",
		"Mozilla/5.0 (Linux; Android 15; SM-S921B) AppleWebKit/537.36 (KHTML, like Gecko) SamsungBrowser/28.0 Chrome/130.0.0.0 Mobile Safari/537.36": "Samsung Internet on Android",
		"Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) HeadlessChrome/141.0.0.0 Safari/537.36":                              "Chrome on Linux",
		"curl/8.14": "A browser", "": "A browser", "<img src=x> on Windows": "A browser on Windows",
	} {
		if got := Device(agent); got != want {
			t.Errorf("%q is %q, want %q", agent, got, want)
		}
	}
}
