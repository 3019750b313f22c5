package ledger

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"time"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/defence"
	"choir.dev/choiros/internal/durable"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/supervise"
)

// Head describes the end of a log: its newest acknowledged event.
type Head struct {
	Sequence uint64
	Epoch    uint64
	Link     contract.Link
}

// A head's file has two slots. New heads are written to one of them, over the previous one,
// until that slot has been synced; then the other slot is used. So a power cut damages at
// most the slot that was not synced, and the other one holds the head of about a second
// before.
const (
	headSlot  = 512 // bytes
	headEvery = time.Second
	headMagic = "choir-head-1"
)

// ReadHead reads a head's file. Errors: fs.ErrNotExist in the chain when there is none,
// fault.Damaged when neither slot is valid.
func ReadHead(path string) (Head, error) {
	h, _, err := readHead(path)
	return h, err
}

func readHead(path string) (newest Head, slot int, err error) {
	const op = "ledger.ReadHead"
	f, err := os.Open(path)
	if err != nil {
		return Head{}, 0, fault.Wrap(op, err)
	}
	b, err := io.ReadAll(io.LimitReader(f, 2*headSlot))
	if err := errors.Join(err, f.Close()); err != nil {
		return Head{}, 0, fault.Wrap(op, err)
	}
	found := false
	for i := 0; i*headSlot < len(b); i++ {
		h, ok := decodeHead(b[i*headSlot : min((i+1)*headSlot, len(b))])
		if ok && (!found || h.Sequence > newest.Sequence) {
			newest, slot, found = h, i, true
		}
	}
	if !found {
		return Head{}, 0, fault.New(op, fault.Damaged, "Run choir recover: it says where the log ends by everything else that knows.", fmt.Errorf("%s does not hold together", path))
	}
	return newest, slot, nil
}

func encodeHead(h Head) []byte {
	line := fmt.Sprintf("%s %d %d %s ", headMagic, h.Sequence, h.Epoch, h.Link)
	b := bytes.Repeat([]byte{' '}, headSlot)
	copy(b, line+headSum(line))
	b[headSlot-1] = '\n'
	return b
}

func decodeHead(b []byte) (Head, bool) {
	var h Head
	var magic, sum string
	if n, err := fmt.Sscan(string(b), &magic, &h.Sequence, &h.Epoch, &h.Link, &sum); err != nil || n != 5 || magic != headMagic {
		return Head{}, false
	}
	return h, bytes.Equal(b, encodeHead(h)) && h.Link.Validate() == nil
}

func headSum(line string) string {
	sum := sha256.Sum256([]byte(line))
	return hex.EncodeToString(sum[:8])
}

func headOf(s stored) Head {
	return Head{Sequence: s.event.Sequence, Epoch: s.event.Epoch, Link: s.link}
}

// headFile keeps a log's head in a file. It is written after each acknowledgement, and
// synced each second and at the end; to sync it each time would cost as much as an append.
type headFile struct {
	trouble func(error)
	path    string
	known   *Head // what the file held when it was opened; nil: there was none

	mu      sync.Mutex
	file    *os.File // nil until the first head is written
	slot    int
	dirty   bool  // whether the slot was written since the last sync
	syncing bool  // whether a sync is under way, during which the slot is not written
	later   *Head // the newest head since the sync began; nil: none
	quit    chan struct{}
	done    chan struct{}
}

func openHead(path string, trouble func(error)) (*headFile, error) {
	if trouble == nil {
		trouble = func(error) {}
	}
	h := &headFile{path: path, trouble: trouble}
	known, slot, err := readHead(path)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return h, nil
	case err != nil:
		return nil, err
	}
	h.known, h.slot = &known, 1-slot
	return h, nil
}

// compare refuses a log that does not hold the event that the head names. A log may go on
// behind that event, because the head is written after the log.
func (h *headFile) compare(ctx context.Context, l *Log, end stored, found bool) error {
	if h.known == nil || defence.Off(defence.LogHead) {
		return nil
	}
	want := *h.known
	if !found || end.event.Sequence < want.Sequence {
		return broken("the log ends at event %d; it had %d", end.event.Sequence, want.Sequence)
	}
	at := end
	if end.event.Sequence > want.Sequence {
		page, err := l.fetch(ctx, want.Sequence-1, end.event.Sequence, end.position, 1)
		if err != nil {
			return err
		}
		at = page[0]
	}
	if at.link != want.Link {
		return broken("event %d of the log is another one than was acknowledged", want.Sequence)
	}
	return nil
}

// start begins to sync the file every second, until close.
func (h *headFile) start() {
	h.quit, h.done = make(chan struct{}), make(chan struct{})
	go func() {
		defer close(h.done)
		tick := time.NewTicker(headEvery)
		defer tick.Stop()
		for {
			select {
			case <-h.quit:
				return
			case <-tick.C:
			}
			if err := supervise.Safely(h.sync); err != nil {
				h.trouble(err)
			}
		}
	}()
}

// set records the log's newest acknowledged event.
func (h *headFile) set(head Head) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.syncing {
		h.later = &head
		return
	}
	if err := h.write(head); err != nil {
		h.trouble(fault.Wrap("ledger.head", err))
	}
}

func (h *headFile) write(head Head) error {
	if h.file == nil {
		f, err := os.OpenFile(h.path, os.O_RDWR|os.O_CREATE, 0o600)
		if err != nil {
			return err
		}
		h.file = f
		if h.known == nil { // a new file: from now on its absence counts as damage
			if _, err := f.WriteAt(encodeHead(head), headSlot); err != nil {
				return err
			}
			if err := errors.Join(f.Sync(), durable.SyncDir(filepath.Dir(h.path))); err != nil {
				return err
			}
		}
	}
	if _, err := h.file.WriteAt(encodeHead(head), int64(h.slot)*headSlot); err != nil {
		return err
	}
	h.dirty = true
	return nil
}

// sync syncs the slot that was written and goes on in the other one. Calls of set meanwhile
// do not wait for the disk.
func (h *headFile) sync() error {
	h.mu.Lock()
	if !h.dirty {
		h.mu.Unlock()
		return nil
	}
	h.syncing = true
	h.mu.Unlock()
	err := h.file.Sync()
	h.mu.Lock()
	defer h.mu.Unlock()
	h.syncing = false
	if err == nil {
		h.slot, h.dirty = 1-h.slot, false
	}
	if h.later != nil {
		err = errors.Join(err, h.write(*h.later))
		h.later = nil
	}
	return fault.Wrap("ledger.head", err)
}

// close syncs the newest head. A nil headFile has nothing to do.
func (h *headFile) close() error {
	if h == nil {
		return nil
	}
	if h.quit != nil {
		close(h.quit)
		<-h.done
	}
	// The first sync may write a head that was set while it ran, which the second one
	// syncs.
	err := errors.Join(h.sync(), h.sync())
	if h.file != nil {
		err = errors.Join(err, h.file.Close())
	}
	return err
}

// WriteHead writes a head's file anew and durably, for a log that was restored.
func WriteHead(path string, head Head) error {
	f, err := os.CreateTemp(filepath.Dir(path), ".head-*")
	if err != nil {
		return fault.Wrap("ledger.WriteHead", err)
	}
	_, err = f.Write(append(encodeHead(head), encodeHead(head)...))
	if err = errors.Join(err, f.Sync(), f.Close()); err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return fault.Wrap("ledger.WriteHead", errors.Join(err, os.Remove(f.Name())))
	}
	return fault.Wrap("ledger.WriteHead", durable.SyncDir(filepath.Dir(path)))
}
