// Package blobtest tests what every blob store must do, whatever it stores blobs in.
package blobtest

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
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

// Backend is a place that blobs are stored in, with what the tests do to it behind the
// store's back.
type Backend struct {
	// Open opens a store on the place, as the next process would.
	Open func(t testing.TB, quota blob.Quota) blob.Store
	// Overwrite replaces a blob's stored content.
	Overwrite func(t testing.TB, cid contract.CID, ref contract.BlobRef, content []byte)
	// Age makes a blob older; if the blob does not exist it does nothing.
	Age func(t testing.TB, cid contract.CID, ref contract.BlobRef, by time.Duration)
	// Count returns how many blobs the place holds, including leftovers of a failed Put.
	Count func(t testing.TB) int
}

// Run tests the backends that place returns, which must be empty each time.
func Run(t *testing.T, place func(t testing.TB) Backend) {
	for _, c := range []struct {
		name string
		try  func(*testing.T, Backend)
	}{
		{"put and open", putAndOpen}, {"ranged reads", rangedReads}, {"names", refusesNames},
		{"damage", damageIsNoticedAndRepaired}, {"a failed put", failedPutLeavesNothing}, {"quota", quotaHoldsAgainstManyAtOnce},
		{"collect", collect}, {"put races collect", putRacesCollect}, {"put during collect", putDuringCollect},
	} {
		t.Run(c.name, func(t *testing.T) { c.try(t, place(t)) })
	}
}

// Put stores content.
func Put(t testing.TB, s blob.Store, cid contract.CID, content string) contract.BlobRef {
	t.Helper()
	ref, size, err := s.Put(context.Background(), cid, strings.NewReader(content))
	if err != nil || size != int64(len(content)) {
		t.Fatalf("put: %d bytes, %v", size, err)
	}
	return ref
}

func Get(s blob.Store, cid contract.CID, ref contract.BlobRef) (string, error) {
	r, _, err := s.Open(context.Background(), cid, ref)
	if err != nil {
		return "", err
	}
	b, err := io.ReadAll(r)
	return string(b), errors.Join(err, r.Close())
}

func putAndOpen(t *testing.T, b Backend) {
	s, cid := b.Open(t, blob.Quota{}), contract.NewCID()
	for _, content := range []string{"", "x", strings.Repeat("many bytes ", 100_000)} {
		ref := Put(t, s, cid, content)
		if want := contract.NewBlobRef(sha256.Sum256([]byte(content))); ref != want {
			t.Errorf("reference %s, want %s", ref, want)
		}
		if got, err := Get(s, cid, ref); err != nil || got != content {
			t.Errorf("read %d bytes, %v; want %d", len(got), err, len(content))
		}
		if size, err := s.Stat(t.Context(), cid, ref); err != nil || size != int64(len(content)) {
			t.Errorf("stat: %d, %v", size, err)
		}
		if other, err := Get(s, contract.NewCID(), ref); !fault.Is(err, fault.NotFound) {
			t.Errorf("another computer reads %d bytes, %v", len(other), err)
		}
		// It is there for the next process too.
		if got, err := Get(b.Open(t, blob.Quota{}), cid, ref); err != nil || got != content {
			t.Errorf("after reopening: %d bytes, %v", len(got), err)
		}
	}
}

func rangedReads(t *testing.T, b Backend) {
	s, cid := b.Open(t, blob.Quota{}), contract.NewCID()
	rapid.Check(t, func(t *rapid.T) {
		content := rapid.SliceOfN(rapid.Byte(), 0, 2000).Draw(t, "content")
		ref, _, err := s.Put(context.Background(), cid, bytes.NewReader(content))
		if err != nil {
			t.Fatal(err)
		}
		r, size, err := s.Open(context.Background(), cid, ref)
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

func refusesNames(t *testing.T, b Backend) {
	s, cid := b.Open(t, blob.Quota{}), contract.NewCID()
	for _, ref := range []contract.BlobRef{"", "sha256:", "sha256:../../etc/passwd", contract.BlobRef("sha256:" + strings.Repeat("A", 64)), contract.BlobRef(strings.Repeat("a", 64))} {
		if _, _, err := s.Open(t.Context(), cid, ref); !fault.Is(err, fault.Invalid) {
			t.Errorf("open %q: %v", ref, err)
		}
	}
	for _, bad := range []contract.CID{"", "..", "../../../../tmp/x", "ABCDEFGHIJKLMNOP"} {
		if _, _, err := s.Put(t.Context(), bad, strings.NewReader("x")); !fault.Is(err, fault.Invalid) {
			t.Errorf("put for %q: %v", bad, err)
		}
	}
}

func damageIsNoticedAndRepaired(t *testing.T, b Backend) {
	s, cid := b.Open(t, blob.Quota{}), contract.NewCID()
	content := strings.Repeat("precious ", 10_000)
	for name, damage := range map[string]func([]byte) []byte{
		"one bit":   func(c []byte) []byte { c[len(c)/2] ^= 1; return c },
		"last byte": func(c []byte) []byte { c[len(c)-1]++; return c },
		"truncated": func(c []byte) []byte { return c[:len(c)-1] },
		"emptied":   func([]byte) []byte { return nil },
		"longer":    func(c []byte) []byte { return append(c, 0) },
	} {
		ref := Put(t, s, cid, content)
		b.Overwrite(t, cid, ref, damage([]byte(content)))
		got, err := Get(s, cid, ref)
		if !errors.Is(err, blob.ErrCorrupt) || fault.HintOf(err) == "" {
			t.Errorf("%s: read %d bytes, %v; want ErrCorrupt with a hint", name, len(got), err)
		}
		Put(t, s, cid, content)
		if got, err := Get(s, cid, ref); err != nil || got != content {
			t.Errorf("%s: not repaired: %v", name, err)
		}
		if used, err := s.Usage(cid); err != nil {
			t.Errorf("%s: usage %d, %v", name, used, err)
		}
	}
}

func failedPutLeavesNothing(t *testing.T, b Backend) {
	s, cid := b.Open(t, blob.Quota{PerBlob: 1000, PerComputer: 1500}), contract.NewCID()
	keep := Put(t, s, cid, strings.Repeat("a", 900))
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
		if _, _, err := s.Put(tc.ctx, cid, tc.r); !tc.want(err) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if got := b.Count(t); got != 1 {
		t.Errorf("%d are left behind", got-1)
	}
	if used, err := s.Usage(cid); err != nil || used != 900 {
		t.Errorf("usage %d, %v; want 900", used, err)
	}
	// Another computer has a quota of its own, and repeated content counts once.
	Put(t, s, contract.NewCID(), strings.Repeat("c", 700))
	if _, _, err := s.Put(t.Context(), cid, strings.NewReader(strings.Repeat("d", 600))); err != nil {
		t.Errorf("exactly to the quota: %v", err)
	}
	if _, err := s.Collect(t.Context(), cid, func(contract.BlobRef) bool { return false }, 0); err != nil {
		t.Fatal(err)
	}
	if used, _ := s.Usage(cid); used != 0 {
		t.Errorf("usage %d after all was collected", used)
	}
	if _, err := Get(s, cid, keep); !fault.Is(err, fault.NotFound) {
		t.Errorf("collected, yet: %v", err)
	}
}

func quotaHoldsAgainstManyAtOnce(t *testing.T, b Backend) {
	s, cid := b.Open(t, blob.Quota{PerComputer: 10_000}), contract.NewCID()
	var wg sync.WaitGroup
	var mu sync.Mutex
	stored := int64(0)
	for i := range 20 {
		wg.Go(func() {
			content := strings.Repeat(fmt.Sprint(i%10), 3000)
			if i >= 10 {
				content += fmt.Sprint("x", i)
			}
			_, _, err := s.Put(context.Background(), cid, strings.NewReader(content))
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
	used, err := s.Usage(cid)
	if err != nil || used > 10_000 || stored == 0 {
		t.Errorf("usage %d after %d puts, %v", used, stored, err)
	}
}

func collect(t *testing.T, b Backend) {
	s, cid := b.Open(t, blob.Quota{}), contract.NewCID()
	named, old, young, renewed := Put(t, s, cid, "named"), Put(t, s, cid, "old"), Put(t, s, cid, "young"), Put(t, s, cid, "renewed")
	foreign := Put(t, s, contract.NewCID(), "old")
	for _, ref := range []contract.BlobRef{named, old, renewed} {
		b.Age(t, cid, ref, 2*time.Hour)
	}
	Put(t, s, cid, "renewed") // about to be named again: its grace period starts anew
	freed, err := s.Collect(t.Context(), cid, func(ref contract.BlobRef) bool { return ref == named }, time.Hour)
	if err != nil || freed != int64(len("old")) {
		t.Errorf("freed %d, %v", freed, err)
	}
	for ref, want := range map[contract.BlobRef]bool{named: true, old: false, young: true, renewed: true} {
		if _, err := Get(s, cid, ref); (err == nil) != want {
			t.Errorf("%s: %v, want there: %t", ref, err, want)
		}
	}
	_ = foreign
	if got := b.Count(t); got != 4 {
		t.Errorf("%d blobs are left, want 4 with the other computer's", got)
	}
	if err := s.Remove(t.Context(), cid); err != nil {
		t.Fatal(err)
	}
	if got := b.Count(t); got != 1 {
		t.Errorf("%d blobs are left, want the other computer's", got)
	}
	Put(t, s, cid, "again")
	if used, err := s.Usage(cid); err != nil || used != 5 {
		t.Errorf("usage after removal %d, %v", used, err)
	}
}

// A Put of content that is being collected must not lose it.
func putRacesCollect(t *testing.T, b Backend) {
	s, cid := b.Open(t, blob.Quota{}), contract.NewCID()
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				if _, err := s.Collect(context.Background(), cid, func(contract.BlobRef) bool { return false }, time.Hour); err != nil {
					t.Errorf("collect: %v", err)
					return
				}
			}
		}
	})
	for i := range 300 {
		content := fmt.Sprint(rand.IntN(5))
		ref := Put(t, s, cid, content)
		if got, err := Get(s, cid, ref); err != nil || got != content {
			t.Errorf("put %d is gone: %v", i, err)
			break
		}
		// From here on it may be collected, until it is put again.
		b.Age(t, cid, ref, 2*time.Hour)
	}
	close(stop)
	wg.Wait()
}

// A blob that is put again after Collect has looked at its age is kept.
func putDuringCollect(t *testing.T, b Backend) {
	s, cid := b.Open(t, blob.Quota{}), contract.NewCID()
	ref := Put(t, s, cid, "about to be named again")
	b.Age(t, cid, ref, 2*time.Hour)
	freed, err := s.Collect(t.Context(), cid, func(contract.BlobRef) bool {
		Put(t, s, cid, "about to be named again")
		return false
	}, time.Hour)
	if err != nil || freed != 0 {
		t.Errorf("freed %d, %v", freed, err)
	}
	if _, err := Get(s, cid, ref); err != nil {
		t.Errorf("the blob is gone: %v", err)
	}
}
