package ledger_test

import (
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/bus"
	"choir.dev/choiros/internal/ledger"
)

// fillStore stores events of two computers, some of them in batches, and closes the store.
func fillStore(t *testing.T, dir string, cids ...contract.CID) map[contract.CID]ledger.Head {
	t.Helper()
	b, err := bus.Open(t.Context(), bus.Options{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	heads := map[contract.CID]ledger.Head{}
	for round := range 3 {
		for _, cid := range cids {
			head := filepath.Join(t.TempDir(), "head")
			l, err := ledger.Open(t.Context(), b.JetStream(), ledger.Options{CID: cid, Head: head})
			if err != nil {
				t.Fatal(err)
			}
			for i := range 5 {
				mustAppend(t, l, prompt(fmt.Sprintf(`round %d, text %d: ,"sequence":9,"epoch":9,"prev":"x"`, round, i)))
			}
			mustAppend(t, l, prompt("one"), prompt("two"), prompt("three"))
			if err := l.Close(); err != nil {
				t.Fatal(err)
			}
			if heads[cid], err = ledger.ReadHead(head); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	return heads
}

func blocksOf(t *testing.T, dir string) []string {
	t.Helper()
	blocks, err := filepath.Glob(filepath.Join(dir, "jetstream", "*", "streams", "EVENTS-*", "msgs", "*.blk"))
	if err != nil || len(blocks) == 0 {
		t.Fatalf("no blocks in %s (%v)", dir, err)
	}
	return blocks
}

// The survey of a log's files agrees with its head; every flipped bit and every truncation
// of a block is found, as damage or as a log that ends before its head. The files are only
// read.
func TestASurveySeesEveryFlippedBit(t *testing.T) {
	dir, a, b := t.TempDir(), contract.NewCID(), contract.NewCID()
	heads := fillStore(t, dir, a, b)
	whole := func() (bool, string) {
		before := treeHash(t, dir)
		surveys, damage, err := ledger.SurveyStore(context.Background(), dir, "", nil)
		if err != nil {
			t.Fatal(err)
		}
		if treeHash(t, dir) != before {
			t.Fatal("a survey wrote")
		}
		text := fmt.Sprint(damage)
		ok := len(damage) == 0
		for cid, head := range heads {
			s := surveys[cid]
			if s == nil {
				return false, text + " no log"
			}
			if s.Broken != "" || s.End != head {
				return false, text + fmt.Sprintf(" %+v", s)
			}
		}
		return ok, text
	}
	if ok, text := whole(); !ok {
		t.Fatalf("a whole store: %s", text)
	}
	block := blocksOf(t, dir)[0]
	good, err := os.ReadFile(block)
	if err != nil {
		t.Fatal(err)
	}
	for at := 0; at < len(good); at += 1 + len(good)/700 {
		bad := append([]byte(nil), good...)
		bad[at] ^= 1 << (at % 8)
		if err := os.WriteFile(block, bad, 0o600); err != nil {
			t.Fatal(err)
		}
		if ok, text := whole(); ok {
			t.Errorf("bit %d of byte %d of %d: %s", at%8, at, len(good), text)
		}
		if err := os.WriteFile(block, good[:at], 0o600); err != nil {
			t.Fatal(err)
		}
		if ok, text := whole(); ok {
			t.Errorf("cut at %d of %d: %s", at, len(good), text)
		}
	}
	// The incomplete record that a killed process leaves at the end is no damage.
	if err := os.WriteFile(block, append(append([]byte(nil), good...), good[:100]...), 0o600); err != nil {
		t.Fatal(err)
	}
	surveys, damage, err := ledger.SurveyStore(t.Context(), dir, "", nil)
	if err != nil || len(damage) > 0 || surveys[a].End != heads[a] {
		t.Errorf("a torn end: %v, %v, %+v", damage, err, surveys[a])
	}
	if err := os.WriteFile(block, good, 0o600); err != nil {
		t.Fatal(err)
	}
	meta := filepath.Join(filepath.Dir(filepath.Dir(block)), "meta.inf")
	if err := os.Remove(meta); err != nil {
		t.Fatal(err)
	}
	if ok, text := whole(); ok {
		t.Errorf("no description: %s", text)
	}
}

// The length of a message's headers is covered by no checksum. Whatever wrong length is
// stored, the log does not count as whole, whether the message has one event or several.
func TestASurveySeesOtherHeaders(t *testing.T) {
	dir, cid := t.TempDir(), contract.NewCID()
	head := fillStore(t, dir, cid)[cid]
	block := blocksOf(t, dir)[0]
	good, err := os.ReadFile(block)
	if err != nil {
		t.Fatal(err)
	}
	tried := 0
	for at := 0; ; {
		next := bytes.Index(good[at:], []byte("NATS/1.0\r\n"))
		if next < 0 {
			break
		}
		at += next + 1
		for bit := range 32 {
			bad := bytes.Clone(good)
			bad[at-5+bit/8] ^= 1 << (bit % 8)
			if err := os.WriteFile(block, bad, 0o600); err != nil {
				t.Fatal(err)
			}
			surveys, damage, err := ledger.SurveyStore(t.Context(), dir, "", nil)
			if err != nil {
				t.Fatal(err)
			}
			if s := surveys[cid]; len(damage) == 0 && s.Broken == "" && s.End == head {
				t.Errorf("message %d with another length of its headers, bit %d, is taken for whole", tried, bit)
			}
		}
		tried++
	}
	if tried != 18 {
		t.Errorf("%d messages were tried", tried)
	}
}

// treeHash tells whether anything in a directory changed.
func treeHash(t testing.TB, dir string) string {
	t.Helper()
	out := ""
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		b, err := os.ReadFile(path)
		out += path + string(contract.LinkOf(b)) + "\n"
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}
