package blob_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"time"

	"pgregory.net/rapid"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/blob"
	"choir.dev/choiros/internal/fault"
)

func open(t testing.TB, dir string, q blob.Quota) *blob.Disk {
	t.Helper()
	d, err := blob.OpenDisk(dir, q)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func put(t testing.TB, d *blob.Disk, cid contract.CID, content string) contract.BlobRef {
	t.Helper()
	ref, size, err := d.Put(context.Background(), cid, strings.NewReader(content))
	if err != nil || size != int64(len(content)) {
		t.Fatalf("put: %d bytes, %v", size, err)
	}
	return ref
}

func get(d *blob.Disk, cid contract.CID, ref contract.BlobRef) (string, error) {
	r, _, err := d.Open(context.Background(), cid, ref)
	if err != nil {
		return "", err
	}
	b, err := io.ReadAll(r)
	return string(b), errors.Join(err, r.Close())
}

// files lists everything below dir that is not a directory.
func files(t testing.TB, dir string) []string {
	t.Helper()
	var out []string
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err == nil && !e.IsDir() {
			out = append(out, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func TestPutAndOpen(t *testing.T) {
	dir := t.TempDir()
	d, cid := open(t, dir, blob.Quota{}), contract.NewCID()
	for _, content := range []string{"", "x", strings.Repeat("many bytes ", 100_000)} {
		ref := put(t, d, cid, content)
		if want := contract.NewBlobRef(sha256.Sum256([]byte(content))); ref != want {
			t.Errorf("reference %s, want %s", ref, want)
		}
		if got, err := get(d, cid, ref); err != nil || got != content {
			t.Errorf("read %d bytes, %v; want %d", len(got), err, len(content))
		}
		if size, err := d.Stat(t.Context(), cid, ref); err != nil || size != int64(len(content)) {
			t.Errorf("stat: %d, %v", size, err)
		}
		path := filepath.Join(dir, string(cid), ref.Hex()[:2], ref.Hex())
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v", path, info, err)
		}
		if other, err := get(d, contract.NewCID(), ref); !fault.Is(err, fault.NotFound) {
			t.Errorf("another computer reads %d bytes, %v", len(other), err)
		}
		// It is there for the next process too.
		if got, err := get(open(t, dir, blob.Quota{}), cid, ref); err != nil || got != content {
			t.Errorf("after reopening: %d bytes, %v", len(got), err)
		}
	}
}

func TestRangedReads(t *testing.T) {
	d, cid := open(t, t.TempDir(), blob.Quota{}), contract.NewCID()
	rapid.Check(t, func(t *rapid.T) {
		content := rapid.SliceOfN(rapid.Byte(), 0, 2000).Draw(t, "content")
		ref, _, err := d.Put(context.Background(), cid, bytes.NewReader(content))
		if err != nil {
			t.Fatal(err)
		}
		r, size, err := d.Open(context.Background(), cid, ref)
		if err != nil || size != int64(len(content)) {
			t.Fatalf("size %d, %v", size, err)
		}
		defer r.Close()
		for range 5 {
			from := rapid.IntRange(0, len(content)).Draw(t, "from")
			n := rapid.IntRange(0, len(content)-from).Draw(t, "n")
			if _, err := r.Seek(int64(from), io.SeekStart); err != nil {
				t.Fatal(err)
			}
			got := make([]byte, n)
			if _, err := io.ReadFull(r, got); err != nil || !bytes.Equal(got, content[from:from+n]) {
				t.Fatalf("bytes %d to %d: %v", from, from+n, err)
			}
		}
		if _, err := r.Seek(0, io.SeekStart); err != nil {
			t.Fatal(err)
		}
		if err := iotest.TestReader(r, content); err != nil {
			t.Fatal(err)
		}
	})
}

func TestRefusesNames(t *testing.T) {
	d, cid := open(t, t.TempDir(), blob.Quota{}), contract.NewCID()
	for _, ref := range []contract.BlobRef{"", "sha256:", "sha256:../../etc/passwd", contract.BlobRef("sha256:" + strings.Repeat("A", 64)), contract.BlobRef(strings.Repeat("a", 64))} {
		if _, _, err := d.Open(t.Context(), cid, ref); !fault.Is(err, fault.Invalid) {
			t.Errorf("open %q: %v", ref, err)
		}
	}
	for _, bad := range []contract.CID{"", "..", "../../../../tmp/x", "ABCDEFGHIJKLMNOP"} {
		if _, _, err := d.Put(t.Context(), bad, strings.NewReader("x")); !fault.Is(err, fault.Invalid) {
			t.Errorf("put for %q: %v", bad, err)
		}
	}
}

func TestDamageIsNoticedAndRepaired(t *testing.T) {
	dir := t.TempDir()
	d, cid := open(t, dir, blob.Quota{}), contract.NewCID()
	content := strings.Repeat("precious ", 10_000)
	for name, damage := range map[string]func([]byte) []byte{
		"one bit":   func(b []byte) []byte { b[len(b)/2] ^= 1; return b },
		"last byte": func(b []byte) []byte { b[len(b)-1]++; return b },
		"truncated": func(b []byte) []byte { return b[:len(b)-1] },
		"emptied":   func([]byte) []byte { return nil },
		"longer":    func(b []byte) []byte { return append(b, 0) },
	} {
		ref := put(t, d, cid, content)
		path := filepath.Join(dir, string(cid), ref.Hex()[:2], ref.Hex())
		if err := os.WriteFile(path, damage([]byte(content)), 0o600); err != nil {
			t.Fatal(err)
		}
		got, err := get(d, cid, ref)
		if !errors.Is(err, blob.ErrCorrupt) || fault.HintOf(err) == "" {
			t.Errorf("%s: read %d bytes, %v; want ErrCorrupt with a hint", name, len(got), err)
		}
		put(t, d, cid, content)
		if got, err := get(d, cid, ref); err != nil || got != content {
			t.Errorf("%s: not repaired: %v", name, err)
		}
		if used, err := d.Usage(cid); err != nil {
			t.Errorf("%s: usage %d, %v", name, used, err)
		}
	}
}

func TestFailedPutLeavesNothing(t *testing.T) {
	dir := t.TempDir()
	d, cid := open(t, dir, blob.Quota{PerBlob: 1000, PerComputer: 1500}), contract.NewCID()
	keep := put(t, d, cid, strings.Repeat("a", 900))
	boom := errors.New("boom")
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for name, tc := range map[string]struct {
		ctx  context.Context
		r    io.Reader
		want func(error) bool
	}{
		"reader fails":   {t.Context(), io.MultiReader(strings.NewReader("some"), iotest.ErrReader(boom)), func(err error) bool { return errors.Is(err, boom) }},
		"blob too large": {t.Context(), strings.NewReader(strings.Repeat("b", 1001)), func(err error) bool { return fault.Is(err, fault.Exhausted) }},
		"quota used up":  {t.Context(), strings.NewReader(strings.Repeat("c", 700)), func(err error) bool { return fault.Is(err, fault.Exhausted) && fault.HintOf(err) != "" }},
		"cancelled":      {ended, strings.NewReader("x"), func(err error) bool { return fault.Is(err, fault.Cancelled) }},
	} {
		if _, _, err := d.Put(tc.ctx, cid, tc.r); !tc.want(err) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if got := files(t, dir); len(got) != 1 {
		t.Errorf("left behind: %v", got)
	}
	if used, err := d.Usage(cid); err != nil || used != 900 {
		t.Errorf("usage %d, %v; want 900", used, err)
	}
	// Another computer has a quota of its own, and repeated content counts once.
	put(t, d, contract.NewCID(), strings.Repeat("c", 700))
	if _, _, err := d.Put(t.Context(), cid, strings.NewReader(strings.Repeat("d", 600))); err != nil {
		t.Errorf("exactly to the quota: %v", err)
	}
	if _, err := d.Collect(t.Context(), cid, func(contract.BlobRef) bool { return false }, 0); err != nil {
		t.Fatal(err)
	}
	if used, _ := d.Usage(cid); used != 0 {
		t.Errorf("usage %d after all was collected", used)
	}
	if _, err := get(d, cid, keep); !fault.Is(err, fault.NotFound) {
		t.Errorf("collected, yet: %v", err)
	}
}

func TestQuotaHoldsAgainstManyAtOnce(t *testing.T) {
	d, cid := open(t, t.TempDir(), blob.Quota{PerComputer: 10_000}), contract.NewCID()
	var wg sync.WaitGroup
	var mu sync.Mutex
	stored := int64(0)
	for i := range 20 {
		wg.Go(func() {
			content := strings.Repeat(fmt.Sprint(i%10), 3000)
			if i >= 10 {
				content += fmt.Sprint("x", i)
			}
			_, _, err := d.Put(context.Background(), cid, strings.NewReader(content))
			if err != nil && !fault.Is(err, fault.Exhausted) {
				t.Errorf("put: %v", err)
			}
			mu.Lock()
			defer mu.Unlock()
			if err == nil {
				stored++
			}
		})
	}
	wg.Wait()
	used, err := d.Usage(cid)
	if err != nil || used > 10_000 || stored == 0 {
		t.Errorf("usage %d after %d puts, %v", used, stored, err)
	}
}

func TestCollect(t *testing.T) {
	dir := t.TempDir()
	d, cid := open(t, dir, blob.Quota{}), contract.NewCID()
	age := func(ref contract.BlobRef) {
		old := time.Now().Add(-2 * time.Hour)
		if err := os.Chtimes(filepath.Join(dir, string(cid), ref.Hex()[:2], ref.Hex()), old, old); err != nil {
			t.Fatal(err)
		}
	}
	named, old, young, renewed := put(t, d, cid, "named"), put(t, d, cid, "old"), put(t, d, cid, "young"), put(t, d, cid, "renewed")
	foreign := put(t, d, contract.NewCID(), "old")
	for _, ref := range []contract.BlobRef{named, old, renewed} {
		age(ref)
	}
	put(t, d, cid, "renewed") // about to be named again: its grace period starts anew
	freed, err := d.Collect(t.Context(), cid, func(ref contract.BlobRef) bool { return ref == named }, time.Hour)
	if err != nil || freed != int64(len("old")) {
		t.Errorf("freed %d, %v", freed, err)
	}
	for ref, want := range map[contract.BlobRef]bool{named: true, old: false, young: true, renewed: true} {
		if _, err := get(d, cid, ref); (err == nil) != want {
			t.Errorf("%s: %v, want there: %t", ref, err, want)
		}
	}
	_ = foreign
	if got := len(files(t, dir)); got != 4 {
		t.Errorf("%d files are left, want 4 with the other computer's", got)
	}
	if err := d.Remove(t.Context(), cid); err != nil {
		t.Fatal(err)
	}
	if got := len(files(t, dir)); got != 1 {
		t.Errorf("%d files are left, want the other computer's", got)
	}
	put(t, d, cid, "again")
	if used, err := d.Usage(cid); err != nil || used != 5 {
		t.Errorf("usage after removal %d, %v", used, err)
	}
}

// A Put of content that is being collected must not lose it.
func TestPutRacesCollect(t *testing.T) {
	dir := t.TempDir()
	d, cid := open(t, dir, blob.Quota{}), contract.NewCID()
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				if _, err := d.Collect(context.Background(), cid, func(contract.BlobRef) bool { return false }, time.Hour); err != nil {
					t.Errorf("collect: %v", err)
					return
				}
			}
		}
	})
	old := time.Now().Add(-2 * time.Hour)
	for i := range 300 {
		content := fmt.Sprint(rand.IntN(5))
		ref := put(t, d, cid, content)
		if got, err := get(d, cid, ref); err != nil || got != content {
			t.Errorf("put %d is gone: %v", i, err)
			break
		}
		// From here on it may be collected, until it is put again.
		if err := os.Chtimes(filepath.Join(dir, string(cid), ref.Hex()[:2], ref.Hex()), old, old); err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Error(err)
			break
		}
	}
	close(stop)
	wg.Wait()
}

// A blob that is put again after Collect has looked at its age is kept.
func TestPutDuringCollect(t *testing.T) {
	dir := t.TempDir()
	d, cid := open(t, dir, blob.Quota{}), contract.NewCID()
	ref := put(t, d, cid, "about to be named again")
	old := time.Now().Add(-2 * time.Hour)
	if err := os.Chtimes(filepath.Join(dir, string(cid), ref.Hex()[:2], ref.Hex()), old, old); err != nil {
		t.Fatal(err)
	}
	freed, err := d.Collect(t.Context(), cid, func(contract.BlobRef) bool {
		put(t, d, cid, "about to be named again")
		return false
	}, time.Hour)
	if err != nil || freed != 0 {
		t.Errorf("freed %d, %v", freed, err)
	}
	if _, err := get(d, cid, ref); err != nil {
		t.Errorf("the blob is gone: %v", err)
	}
}
