package recovery_test

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/recovery"
	"choir.dev/choiros/test/choirtest"
)

// TestRecoveringOnAFullDisk: a recovery on a full disk says what to free, loses nothing,
// and succeeds once there is space.
func TestRecoveringOnAFullDisk(t *testing.T) {
	if choirtest.SmallDisk(t, "size=24m") == "" {
		return
	}
	a, b := contract.NewCID(), contract.NewCID()
	dir := fill(t, a, b)
	before := stored(t, dir)
	blocks, err := filepath.Glob(dir.Path("nats", "jetstream", "*", "streams", contract.StreamLog(a), "msgs", "1.blk"))
	if err != nil || len(blocks) != 1 {
		t.Fatal(blocks, err)
	}
	st, err := os.Stat(blocks[0])
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(blocks[0], st.Size()/2); err != nil {
		t.Fatal(err)
	}
	free := choirtest.FillDisk(t, 0)
	options := recovery.Options{Dir: dir, Driver: "local", Logger: slog.New(slog.DiscardHandler)}
	for range 2 {
		if _, err := recovery.Recover(t.Context(), options); !fault.Is(err, fault.DiskFull) || !strings.Contains(fault.HintOf(err), "Free some space") {
			t.Fatalf("recovering on a full disk: %v (%s)", err, fault.CodeOf(err))
		}
	}
	// A recovery that was begun can't be finished. This affects only its own computer, and
	// it is finished once there is space or the reserve is released.
	journal := dir.Path("recovering." + string(b))
	text := `{"aside":"aside/x","states":["` + string(b) + `"]}` + "\n"
	if err := errors.Join(os.Rename(dir.Computer(b, "log.head"), journal), os.Truncate(journal, 0), os.WriteFile(dir.Computer(b, "state.sqlite"), nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	free() // for the journal itself
	if err := os.WriteFile(journal, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	free = choirtest.FillDisk(t, 0)
	r, err := recovery.FinishAndInspect(t.Context(), dir)
	if err != nil || !r.Usable() || !fault.Is(r.Refusal(b), fault.DiskFull) || !strings.Contains(fault.HintOf(r.Refusal(b)), "Free some space") || fault.Is(r.Refusal(a), fault.DiskFull) {
		t.Fatalf("%+v, %v", r, err)
	}
	free()
	if _, err := recovery.Recover(t.Context(), options); err != nil {
		t.Fatal(err)
	}
	after := stored(t, dir)
	if after[b] != before[b] {
		t.Errorf("the log that was whole holds\n%s\nand held\n%s", after[b], before[b])
	}
	first, _, _ := strings.Cut(before[a], "\n")
	if !strings.HasPrefix(after[a], first) || !strings.Contains(after[a], "log.recovered") {
		t.Errorf("the damaged one holds\n%s\nand held\n%s", after[a], before[a])
	}
}
