package outage_test

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"choir.dev/choiros/internal/workspace/keeper/disk"
	"choir.dev/choiros/internal/workspace/keeper/outage"
)

// TestAnEndIsToldByItsFile shows that an unknown end is taken for the worst, and that the mark of a
// clean end is void as soon as the next keeper begins.
func TestAnEndIsToldByItsFile(t *testing.T) {
	boot, err := disk.BootID()
	if err != nil {
		t.Fatal(err)
	}
	for content, want := range map[string]outage.Ending{
		"":                      outage.Unknown,
		boot:                    outage.Killed,
		"another":               outage.Unknown,
		"closed " + boot:        outage.Clean,
		"closed another":        outage.Apart,
		"closed ":               outage.Unknown,
		"\x00\x00\x00\x00":      outage.Unknown,
		" closed " + boot + " ": outage.Unknown,
	} {
		file := filepath.Join(t.TempDir(), "open")
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if got, err := outage.Begin(file); err != nil || got != want {
			t.Errorf("%q is taken for %v, %v; want %v", content, got, err, want)
		}
		if got, err := outage.Begin(file); err != nil || got != outage.Killed {
			t.Errorf("after it, a keeper that said nothing is taken for %v, %v", got, err)
		}
	}
	file := filepath.Join(t.TempDir(), "open")
	if got, err := outage.Begin(file); err != nil || got != outage.Unknown {
		t.Errorf("without a file: %v, %v", got, err)
	}
	if err := outage.MarkClean(file); err != nil {
		t.Fatal(err)
	}
	if got, err := outage.Begin(file); err != nil || got != outage.Clean {
		t.Errorf("after a clean end: %v, %v", got, err)
	}
}

// TestInspect shows that what an unclean end can have made of a file is told from what a program
// wrote.
func TestInspect(t *testing.T) {
	dir := t.TempDir()
	root, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(root)
	text := bytes.Repeat([]byte("text\n"), 4000)
	torn := append(bytes.Clone(text[:8192]), make([]byte, len(text)-8192)...)
	for name, test := range map[string]struct {
		now, was []byte
		want     string
	}{
		"empty":                  {nil, nil, outage.Emptied},
		"zeroes":                 {make([]byte, 100_000), nil, outage.Zeroed},
		"text":                   {text, nil, ""},
		"text that was text":     {text, text, ""},
		"torn":                   {torn, text, outage.Torn},
		"torn, as it was before": {torn, torn, ""},
		"zeroes within a block":  {append(bytes.Clone(text[:4000]), make([]byte, 96)...), text, ""},
	} {
		if err := os.WriteFile(filepath.Join(dir, "f"), test.now, 0o600); err != nil {
			t.Fatal(err)
		}
		if got, err := outage.Inspect(root, "f", test.was); err != nil || got != test.want {
			t.Errorf("%s: %q, %v; want %q", name, got, err, test.want)
		}
	}
	if got, err := outage.Inspect(root, "none/f", nil); err != nil || got != "" {
		t.Errorf("of what is gone: %q, %v", got, err)
	}
}
