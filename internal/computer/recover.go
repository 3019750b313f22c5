package computer

import (
	"context"
	"errors"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/recovery"
	"choir.dev/choiros/internal/view"
)

// logRefusal says why a computer's log must not be opened, or is nil.
func (h *Host) logRefusal(cid contract.CID) error {
	h.damage.RLock()
	defer h.damage.RUnlock()
	return h.Report.Log(cid)
}

// refused says whether a computer must not be opened: it is damaged, or a
// recovery of it is not at its end.
func (h *Host) refused(cid contract.CID) bool {
	h.damage.RLock()
	defer h.damage.RUnlock()
	return h.Report.Refusal(cid) != nil
}

// hurt says of a computer that is damaged, or whose recovery is not at its end,
// what is safe and what can be done; false: it is neither.
func (h *Host) hurt(p place, t *view.Trouble) bool {
	h.damage.RLock()
	defer h.damage.RUnlock()
	if p.state != view.StateDamaged {
		return false
	}
	t.Safe = "Nothing was written over what is there: the log, the files and their history are as they were found."
	if h.Report.Unfinished[p.cid] != nil || h.Report.Unfinished[""] != nil {
		t.Safe = "Files are as they were; of the log and its history, what there was before the recovery is kept beside the new, in aside/ of the data directory."
	}
	for _, d := range h.Report.Of(p.cid) {
		t.Damage = append(t.Damage, d.String())
	}
	if len(t.Damage) > 0 || errors.As(p.err, new(ofHistory)) {
		// The error's own hint is for a terminal.
		t.Hint = "Press Recover: it brings back what another copy knows, and keeps what is there aside. Or restore the data directory from a backup, and try again."
	}
	err := p.failed
	if err == nil {
		err = h.Report.Failed
	}
	if err != nil {
		t.Reason += "; the last recovery failed: " + fault.Text(err)
		if hint := fault.HintOf(err); hint != "" {
			t.Hint = hint
		}
	}
	t.Actions = append(t.Actions, view.RepairRecover)
	return true
}

// look looks anew at a computer that was refused. It does nothing where nothing
// was damaged.
func (h *Host) look(ctx context.Context, p *place) error {
	if !h.refused(p.cid) {
		return nil
	}
	return h.lookAt(ctx, p)
}

// lookAt looks at what is one computer's own, while the others are awake. A log
// that is whole again is put back where the store sees it.
func (h *Host) lookAt(ctx context.Context, p *place) error {
	var r *recovery.Report
	err := h.reserve.Spaced(ctx, func() (err error) {
		if r, err = recovery.LookAt(ctx, h.Dir, p.cid); err != nil {
			return err
		}
		return r.Unfinished[p.cid]
	})
	if r == nil {
		return err
	}
	held, err := h.held(ctx, r, p.cid)
	if err != nil {
		return err
	}
	if held {
		return errors.Join(h.again(Restart{}), r.Refusal(p.cid))
	}
	if err := recovery.Arrange(h.Dir, r); err != nil {
		return err
	}
	h.counting.Lock()
	delete(h.counted, p.cid) // it may be another log than the one that was counted
	h.counting.Unlock()
	h.damage.Lock()
	defer h.damage.Unlock()
	h.Report.Set(p.cid, r)
	return h.Report.Refusal(p.cid)
}

// held says that a log is damaged that the store has open as it was when it was
// whole: it can be set apart once everything is closed.
func (h *Host) held(ctx context.Context, r *recovery.Report, cid contract.CID) (bool, error) {
	if !r.LogDamaged(cid) {
		return false, nil
	}
	return h.Bus.Serves(ctx, cid)
}

// Restart is what has to happen while nothing is open.
type Restart struct {
	Recover bool // recover what is damaged, before everything starts anew
	// Only are the computers that are recovered; nil: all.
	Only []contract.CID
	// Histories are computers whose history of checkpoints is what is damaged.
	Histories []contract.CID
}

// Recover implements control.Computers. The others are awake meanwhile; only what
// all share is recovered with everything closed, and then everything starts anew.
func (h *Host) Recover(_ context.Context, cid contract.CID) error {
	h.mu.Lock()
	p := h.places[cid]
	damaged := p != nil && p.state == view.StateDamaged
	var hurt []contract.CID
	if damaged {
		hurt = historyOf(cid, p.err)
	}
	h.mu.Unlock()
	switch {
	case p == nil:
		return noComputer("computer.Recover", cid)
	case !damaged:
		return fault.New("computer.Recover", fault.Conflict, "", errors.New("nothing of this computer is damaged"))
	}
	r := Restart{Recover: true, Only: []contract.CID{cid}, Histories: hurt}
	if !h.Report.Usable() {
		return h.again(r)
	}
	h.begin(p, view.WakeRequest{}, func(ctx context.Context) error { return h.recoverOne(ctx, p, r) })
	return nil
}

// historyOf is the computer whose history may be given up for what kept it from
// waking. Other damage is looked at anew, and is no reason to.
func historyOf(cid contract.CID, err error) []contract.CID {
	var history ofHistory
	if errors.As(err, &history) {
		return []contract.CID{cid}
	}
	return nil
}

// recoverOne recovers one computer, which nobody has open.
func (h *Host) recoverOne(ctx context.Context, p *place, r Restart) error {
	now, err := recovery.LookAt(ctx, h.Dir, p.cid)
	if err != nil {
		return err
	}
	held, err := h.held(ctx, now, p.cid)
	if err != nil {
		return err
	}
	if held {
		return errors.Join(h.again(r), now.Refusal(p.cid))
	}
	var done *recovery.Result
	err = h.reserve.Spaced(ctx, func() (err error) {
		done, err = recovery.Recover(ctx, recovery.Options{
			Dir: h.Dir, Driver: h.Driver.Name(), Logger: h.Logger, Only: r.Only, Histories: r.Histories, Bus: h.Bus,
		})
		return err
	})
	h.mu.Lock()
	p.failed = err
	h.mu.Unlock()
	h.damage.Lock()
	h.Report.Failed = nil // that was an earlier one
	h.damage.Unlock()
	if err != nil {
		h.Logger.Error("a computer could not be recovered", "computer", string(p.cid), "error", err)
		return h.lookAt(ctx, p)
	}
	if note, ok := done.Computers[p.cid]; ok {
		h.Logger.Info("a computer was recovered", "computer", string(p.cid), "events", note.Kept, "lost", note.Lost, "aside", done.Aside)
	}
	return h.lookAt(ctx, p)
}
