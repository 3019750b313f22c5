package ledger_test

import (
	"context"
	"crypto/sha256"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/bus"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/ledger"
)

// withoutDescriptors calls a function while the process can open no file.
func withoutDescriptors(t *testing.T, do func()) {
	t.Helper()
	var was unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &was); err != nil {
		t.Fatal(err)
	}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 0, Max: was.Max}); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &was); err != nil {
			t.Error(err)
		}
	}()
	if f, err := os.Open(os.DevNull); err == nil {
		t.Fatal("a file can be opened", f.Close())
	}
	do()
}

// covered is an index that covers the log and has no event of it.
type covered uint64

func (c covered) LastSeq(context.Context) (uint64, error) { return uint64(c), nil }

func (covered) ByID(context.Context, string, string) (seq uint64, digest [sha256.Size]byte, ok bool, err error) {
	return 0, digest, false, nil
}
func (covered) LastBySubject(context.Context, string) (uint64, error) { return 0, nil }

// An event that can't be read because no more files can be opened is neither missing nor
// damage: the reader is told to try again. The test is not parallel because the limit is
// the process's.
func TestAnEventThatCantBeReadIsNotMissing(t *testing.T) {
	dir, cid := t.TempDir(), contract.NewCID()
	b := openBus(t, dir)
	l := openLog(t, b, ledger.Options{CID: cid})
	text, last := strings.Repeat("x", 30_000), uint64(0)
	blocks := func() int {
		files, err := filepath.Glob(filepath.Join(dir, "jetstream/*/streams/*/msgs/*.blk"))
		if err != nil {
			t.Fatal(err)
		}
		return len(files)
	}
	for blocks() < 3 {
		for _, e := range mustAppend(t, l, prompt(text), prompt(text), prompt(text), prompt(text), prompt(text), prompt(text), prompt(text), prompt(text)) {
			last = e.Sequence
		}
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	// A server whose index was not written in time reads all blocks as it opens and keeps
	// them in memory; one that is opened after it has read none.
	for tries := 1; ; tries++ {
		var err error
		if b, err = bus.Open(t.Context(), bus.Options{Dir: dir}); err != nil {
			t.Fatal(err)
		}
		if l, err = ledger.Open(t.Context(), b.JetStream(), ledger.Options{CID: cid, Index: covered(last), FailedReads: b.FailedReads}); err != nil {
			t.Fatal(err)
		}
		var page []contract.Event
		withoutDescriptors(t, func() { page, err = l.Read(t.Context(), last/4, 1) })
		if err == nil && tries < 100 {
			if err := errors.Join(l.Close(), b.Close()); err != nil {
				t.Fatal(err)
			}
			continue
		}
		if !fault.Is(err, fault.Unavailable) || fault.HintOf(err) != fault.HintOf(unix.EMFILE) || !strings.Contains(fault.Text(err), unix.EMFILE.Error()) {
			t.Errorf("behind event %d it reads %d events, %v", last/4, len(page), err)
		}
		break
	}
	defer func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	}()
	if page, err := l.Read(t.Context(), 0, 1); err != nil || len(page) != 1 || page[0].Sequence != 1 {
		t.Errorf("afterwards it reads %v, %v", page, err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
}
