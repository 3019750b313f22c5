package ledger_test

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/ledger"
	"choir.dev/choiros/test/choirtest"
)

func TestDiskFull(t *testing.T) {
	dir := choirtest.SmallDisk(t, "size=32m")
	if dir == "" {
		return
	}
	b := openBus(t, filepath.Join(dir, "nats"))
	l := openLog(t, b, ledger.Options{CID: contract.NewCID()})
	mustAppend(t, l, prompt("before"))
	free := choirtest.FillDisk(t, 0)
	draft := prompt(strings.Repeat("y", 30_000))
	draft.ID = contract.NewID()
	for range 3 {
		if _, err := l.Append(t.Context(), draft); !fault.Is(err, fault.DiskFull) || fault.HintOf(err) == "" {
			t.Fatalf("append on a full disk: %v (%s), want disk_full with a hint", err, fault.CodeOf(err))
		}
	}
	if page, err := l.Read(t.Context(), 0, 10); err != nil || len(page) != 1 {
		t.Errorf("reading on a full disk: %d events, %v", len(page), err)
	}
	free()
	// Appends succeed again without anybody's help.
	deadline := time.Now().Add(30 * time.Second)
	for {
		_, err := l.Append(t.Context(), draft)
		if err == nil {
			break
		}
		if !fault.Is(err, fault.DiskFull) && !fault.Is(err, fault.Unavailable) || time.Now().After(deadline) {
			t.Fatalf("after space was freed: %v", err)
		}
		time.Sleep(50 * time.Millisecond)
	}
	mustAppend(t, l, prompt("after"))
	if n := len(wholeLog(t, l)); n != 3 {
		t.Errorf("the log holds %d events, want 3", n)
	}
}

// TestANewLogOnAFullDisk: a new log without room on the disk is refused with a hint to free
// space, and made once there is space.
func TestANewLogOnAFullDisk(t *testing.T) {
	dir := choirtest.SmallDisk(t, "size=32m")
	if dir == "" {
		return
	}
	b := openBus(t, filepath.Join(dir, "nats"))
	free := choirtest.FillDisk(t, 0)
	opts := ledger.Options{CID: contract.NewCID(), Health: b.Health}
	for range 2 {
		if _, err := ledger.Open(t.Context(), b.JetStream(), opts); !fault.Is(err, fault.DiskFull) || fault.HintOf(err) != fault.FreeSpace {
			t.Fatalf("a new log on a full disk: %v (%s)", err, fault.CodeOf(err))
		}
	}
	if _, err := b.Refill(t.Context(), contract.NewCID()); !fault.Is(err, fault.DiskFull) {
		t.Errorf("a log to refill: %v (%s)", err, fault.CodeOf(err))
	}
	free()
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		if b.Health() != nil && time.Now().Before(deadline) {
			continue // the server starts anew
		}
		l, err := ledger.Open(t.Context(), b.JetStream(), opts)
		if err == nil {
			mustAppend(t, l, prompt("after"))
			if err := l.Close(); err != nil {
				t.Error(err)
			}
			return
		}
		if !fault.Is(err, fault.DiskFull) && !fault.Is(err, fault.Unavailable) || time.Now().After(deadline) {
			t.Fatalf("after space was freed: %v", err)
		}
	}
}
