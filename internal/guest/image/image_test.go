package image

import (
	"bytes"
	_ "embed"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"choir.dev/choiros/internal/fault"
)

func TestPathWithoutAPayloadIsThisBinary(t *testing.T) {
	if Embedded() {
		t.Skip("this build carries the guest")
	}
	path, err := Path(t.TempDir())
	if self, _ := os.Executable(); err != nil || path != self {
		t.Fatalf("got %s %v, want this binary %s", path, err, self)
	}
}

func TestWhatIsPackedIsPlaced(t *testing.T) {
	binary := make([]byte, 300_000)
	for i := range binary {
		binary[i] = byte(rand.IntN(5))
	}
	raw, err := Pack(binary)
	packed := string(raw)
	if err != nil {
		t.Fatal(err)
	}
	if len(packed) > len(binary)/2 {
		t.Errorf("%d bytes became %d", len(binary), len(packed))
	}
	dir := t.TempDir()
	path, err := place(packed, dir)
	if err != nil {
		t.Fatal(err)
	}
	read := func() []byte {
		t.Helper()
		got, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o555 || filepath.Dir(path) != dir || !bytes.Equal(read(), binary) {
		t.Fatalf("%v %v", info, err)
	}
	// It is written once, and a damaged copy is replaced.
	before, _ := os.Stat(path)
	if again, err := place(packed, dir); err != nil || again != path {
		t.Fatal(again, err)
	}
	if after, _ := os.Stat(path); !os.SameFile(before, after) {
		t.Error("a good copy was replaced")
	}
	if err := os.Chmod(path, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, binary[:1000], 0o755); err != nil {
		t.Fatal(err)
	}
	if _, err := place(packed, dir); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(read(), binary) {
		t.Fatal("the damaged copy was kept")
	}
	// A damaged payload is never written out.
	for _, at := range []int{3, 40, len(packed) - 1} {
		bad := bytes.Clone(raw)
		bad[at] ^= 1
		if _, err := place(string(bad), t.TempDir()); !fault.Is(err, fault.Internal) {
			t.Errorf("damaged at %d: %v", at, err)
		}
	}
	if _, err := place(packed[:20], t.TempDir()); !fault.Is(err, fault.Internal) {
		t.Errorf("cut short: %v", err)
	}
}

//go:embed image.go
var source string

func TestWhatIsLetGoIsReadAgain(t *testing.T) {
	want, err := os.ReadFile("image.go")
	if err != nil {
		t.Fatal(err)
	}
	letGo(source)
	if source != string(want) {
		t.Error("the text is another one than it was")
	}
}
