package damage_test

import (
	"archive/tar"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"choir.dev/choiros/test/choirtest"
)

// TestLargeFilesAreRecoveredAndExported shows that large files survive a recovery and an export: if
// chunks are lost, the files that need them are named, and the rest is restored.
func TestLargeFilesAreRecoveredAndExported(t *testing.T) {
	p := prepareBy(t, (*choirtest.Instance).Stop, changeLarge)
	lost := chunks(t, p)["{earlier}"]
	dir := filepath.Join("computers", string(p.cid), "workspace/.git/choir/chunks")
	for name, c := range map[string]struct {
		damage func(t *testing.T, data string) error
		says   string
	}{
		"all chunks": {func(_ *testing.T, data string) error { return os.RemoveAll(filepath.Join(data, dir)) }, "chunks"},
		"a chunk and half the log": {func(t *testing.T, data string) error {
			blocks, err := filepath.Glob(filepath.Join(data, "nats/jetstream/*/streams/EVENTS-*/msgs/*.blk"))
			if err != nil || len(blocks) == 0 {
				t.Fatal(err)
			}
			return errors.Join(os.Remove(filepath.Join(data, dir, lost)), damages("")["cut"](blocks[0], ""))
		}, "from the state"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			data := copied(t, p.data)
			if err := c.damage(t, data); err != nil {
				t.Fatal(err)
			}
			if said := recovered(t, data); !strings.Contains(said, c.says) {
				t.Errorf("the report does not say %q: %s", c.says, said)
			}
			if again := recovered(t, data); !strings.Contains(again, "nothing is damaged") {
				t.Errorf("a second recovery: %s", again)
			}
			in := choirtest.Start(t, choirtest.Options{Data: data})
			if lines, notes := notesOf(t, in); len(lines) < len(p.events) || len(notes) != 1 || notes[0].Lost > 0 || notes[0].History {
				t.Errorf("%d of %d events are there, and %+v is said", len(lines), len(p.events), notes)
			}
			goesBack(t, in, p, isNamed)
			var list []struct{ ID string }
			in.JSON(t, &list, "checkpoints")
			in.Must(t, "exec", "--", "rm", "workspace/large")
			in.Must(t, "restore", list[0].ID)
			if got := largeOf(t, data); got != p.large[1] {
				t.Errorf("what the live file held is %.12s, it was %.12s", got, p.large[1])
			}
			sums := archived(t, in.Get(t, "/api/computers/"+string(p.cid)+"/export"))
			if sums["files/workspace/large"] != p.large[1] {
				t.Error("the archive does not hold the large file")
			}
			kept := 0
			for name, sum := range sums {
				if strings.HasPrefix(name, "files/.git/choir/chunks/") {
					kept++
					if sum != filepath.Base(name) {
						t.Errorf("the archive's %s is %s", name, sum)
					}
				}
			}
			if kept == 0 {
				t.Error("the archive holds no chunks")
			}
			choirtest.Eventually(t, time.Minute, "the lost chunk is named, with its file", func() bool {
				notes := strings.Join(in.Standing(t).Notes, "\n")
				return strings.Contains(notes, filepath.Base(lost)[:16]) && strings.Contains(notes, "workspace/large")
			})
		})
	}
}

// archived returns the SHA-256 sums of an archive's files.
func archived(t *testing.T, b []byte) map[string]string {
	t.Helper()
	sums := map[string]string{}
	r := tar.NewReader(strings.NewReader(string(b)))
	for {
		head, err := r.Next()
		if errors.Is(err, io.EOF) {
			return sums
		}
		h := sha256.New()
		if err == nil && head.Typeflag == tar.TypeReg {
			_, err = io.Copy(h, r)
			sums[head.Name] = fmt.Sprintf("%x", h.Sum(nil))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}
