package fleet

import (
	"errors"
	"os"
	"testing"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/sandbox"
	"choir.dev/choiros/internal/view"
)

// broken is a driver that opens no computer.
type broken struct{ sandbox.Driver }

func (broken) Name() string { return "broken" }

// A computer that could not be made leaves nothing: it is in no list, and neither is
// its directory or its log. One whose log has begun is there, and says why it does
// not wake.
func TestWhatCouldNotBeMadeLeavesNothing(t *testing.T) {
	p := newPurse(t)
	p.ctx = t.Context()
	cid := contract.NewCID()
	if err := os.WriteFile(p.Dir.Computer(cid), nil, 0o600); err != nil { // where its directory should be
		t.Fatal(err)
	}
	p.Driver = broken{}
	if _, err := p.Create(t.Context(), cid, "New"); err == nil {
		t.Errorf("made where nothing can be: %v", err)
	}
	if list, err := p.List(t.Context()); err != nil || len(list) != 0 {
		t.Errorf("listed: %+v, %v", list, err)
	}
	if _, err := os.Lstat(p.Dir.Computer(cid)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("its directory: %v", err)
	}
	if there, err := p.Bus.Serves(t.Context(), cid); err != nil || there {
		t.Errorf("its log is there: %v, %v", there, err)
	}

	begun := p.computer("Begun")
	if _, err := begun.Log().Append(t.Context(), contract.Draft{Actor: contract.System(), Type: "computer.created", Data: contract.ComputerCreated{Name: "Begun", Driver: "broken"}}); err != nil {
		t.Fatal(err)
	}
	if err := begun.Close(); err != nil {
		t.Fatal(err)
	}
	at := p.places[begun.CID()]
	at.c, at.state, at.err = nil, view.StateFailed, errors.New("no keeper")
	if err := p.unmade(t.Context(), at); err != nil {
		t.Errorf("one that has begun is forgotten: %v", err)
	}
	if there, err := p.Bus.Serves(t.Context(), begun.CID()); err != nil || !there || p.places[begun.CID()] == nil {
		t.Errorf("its log is gone: %v, %v", there, err)
	}
}

// There are no more computers than a machine can have.
func TestComputersAreBounded(t *testing.T) {
	p := newPurse(t)
	for range maxComputers {
		cid := contract.NewCID()
		p.places[cid] = &place{cid: cid, state: view.StateAsleep}
	}
	if _, err := p.Create(t.Context(), contract.NewCID(), "One more"); !fault.Is(err, fault.Exhausted) {
		t.Errorf("one too many: %v", err)
	}
}
