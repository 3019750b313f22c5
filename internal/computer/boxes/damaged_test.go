package boxes

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/sandbox"
	"choir.dev/choiros/test/choirtest"
)

// unreadable is a computer whose volumes can't be read at the moment.
type unreadable struct {
	sandbox.Computer
	err error
}

func (u unreadable) Volumes() sandbox.Volumes {
	return unreadableVolumes{u.Computer.Volumes(), u.err}
}

type unreadableVolumes struct {
	sandbox.Volumes
	err error
}

func (u unreadableVolumes) Files(context.Context, sandbox.Volume) (fs.FS, error) { return nil, u.err }

// TestWhatCantBeReadNowStays shows that if a tree can't be read, for example because no descriptor
// is left, the error is reported, and the tree is not taken away from its users.
func TestWhatCantBeReadNowStays(t *testing.T) {
	d := machineDependencies(t, "cid-one")[0]
	of := d.boxes.options.Machine.sharedTrees()
	made := 0
	make := func(ctx context.Context, tmp sandbox.Volume) (installed, error) {
		made++
		return d.filled(map[string]string{"out/a": "a"}, nil, goTree)(ctx, tmp)
	}
	d.has(t, of, "go-x", make)
	clear(of.verified) // as in another process
	on := d.boxes.options.On
	d.boxes.options.On = unreadable{on, fmt.Errorf("open: %w", unix.EMFILE)}
	if _, _, err := of.made(t.Context(), d.boxes, d.turn, "go-x", make); err == nil {
		t.Error("it was read")
	}
	d.boxes.options.On = on
	clear(of.failed) // as a minute later
	if _, kept, err := of.made(t.Context(), d.boxes, d.turn, "go-x", make); err != nil || !kept || made != 1 {
		t.Errorf("it is kept: %t; it was made %d times, %v", kept, made, err)
	}
}

// TestWhatIsUsedIsNotTakenAway shows that a tree that is damaged while a check uses it stays until
// the check is done, and is then made anew.
func TestWhatIsUsedIsNotTakenAway(t *testing.T) {
	both := machineDependencies(t, "cid-one", "cid-two")
	of := both[0].boxes.options.Machine.sharedTrees()
	make := func(d *dependencies) filler {
		return d.filled(map[string]string{"out/a": "a", "out/b": "b"}, nil, goTree)
	}
	if _, _, err := of.made(t.Context(), both[0].boxes, both[0].turn, "go-x", make(both[0])); err != nil {
		t.Fatal(err)
	}
	at := both[0].dir(t, of, "go-x", "out")
	if err := os.WriteFile(at+"/a", []byte("other"), 0o644); err != nil {
		t.Fatal(err)
	}
	clear(of.verified)
	if _, _, err := of.made(t.Context(), both[1].boxes, both[1].turn, "go-x", make(both[1])); !fault.Is(err, fault.Unavailable) {
		t.Errorf("a damaged tree that is in use: %v", err)
	}
	if b, err := os.ReadFile(at + "/b"); err != nil || string(b) != "b" {
		t.Errorf("who uses it reads %q, %v", b, err)
	}
	of.release("go-x")
	clear(of.failed)
	if got, kept, err := of.made(t.Context(), both[1].boxes, both[1].turn, "go-x", make(both[1])); err != nil || kept || got.Note == "" {
		t.Errorf("once nobody uses it: %+v, kept %t, %v", got, kept, err)
	}
}

// TestAFullDiskTakesNoTreeAway shows that an installation for which there is no space leaves
// nothing, and that existing trees stay in use.
func TestAFullDiskTakesNoTreeAway(t *testing.T) {
	if choirtest.SmallDisk(t, "size=8m") == "" {
		return
	}
	d := machineDependencies(t, "cid-one")[0]
	of := d.boxes.options.Machine.sharedTrees()
	large := func() filler {
		return d.filled(map[string]string{"out/a": string(slices.Repeat([]byte("a"), 1<<20))}, nil, goTree)
	}
	d.has(t, of, "go-old", large())
	free := choirtest.FillDisk(t, 16)
	if _, _, err := of.made(t.Context(), d.boxes, d.turn, "go-new", large()); !fault.NoSpace(err) {
		t.Errorf("on a full disk: %v", err)
	}
	if got := d.keys(t, of); !slices.Equal(got, []string{"go-old"}) {
		t.Errorf("there are %v", got)
	}
	clear(of.verified)
	if _, kept, err := of.made(t.Context(), d.boxes, d.turn, "go-old", large()); err != nil || !kept {
		t.Errorf("what was there: kept %t, %v", kept, err)
	}
	free()
	clear(of.failed)
	d.has(t, of, "go-new", large())
}
