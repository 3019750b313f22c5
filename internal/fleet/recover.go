package fleet

import (
	"context"
	"errors"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/computer/consistency"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/recovery"
	"choir.dev/choiros/internal/view"
)

// logRefusal returns why a computer's log must not be opened, or nil.
func (fl *Fleet) logRefusal(cid contract.CID) error {
	fl.damage.RLock()
	defer fl.damage.RUnlock()
	return fl.Report.Log(cid)
}

// refused says whether a computer must not be opened: it is damaged, or a recovery of it is
// unfinished.
func (fl *Fleet) refused(cid contract.CID) bool {
	fl.damage.RLock()
	defer fl.damage.RUnlock()
	return fl.Report.Refusal(cid) != nil
}

// describeDamage fills in, for a computer that is damaged or whose recovery is unfinished, what is
// safe and what can be done; false for any other.
func (fl *Fleet) describeDamage(p place, t *view.Trouble) bool {
	fl.damage.RLock()
	defer fl.damage.RUnlock()
	if p.state != view.StateDamaged {
		return false
	}
	t.Safe = "Nothing was written over what is there: the log, the files and their history are as they were found."
	if fl.Report.Unfinished[p.cid] != nil || fl.Report.Unfinished[""] != nil {
		t.Safe = "Files are as they were; of the log and its history, what there was before the recovery is kept beside the new, in aside/ of the data directory."
	}
	for _, d := range fl.Report.Of(p.cid) {
		t.Damage = append(t.Damage, d.String())
	}
	if len(t.Damage) > 0 || consistency.IsHistoryDamage(p.err) {
		// The error's own hint is meant for a terminal.
		t.Hint = "Press Recover: it brings back what another copy knows, and keeps what is there aside. Or restore the data directory from a backup, and try again."
	}
	err := p.failed
	if err == nil {
		err = fl.Report.Failed
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

// inspectAgain examines a computer that was refused again, and one whose log is closed as all are
// examined when choir starts: what the server would truncate is noticed before it opens the
// log. Otherwise it does nothing.
func (fl *Fleet) inspectAgain(ctx context.Context, p *place) error {
	fl.mu.Lock()
	shut := p.logClosed
	fl.mu.Unlock()
	if !shut && !fl.refused(p.cid) {
		return nil
	}
	return fl.inspect(ctx, p)
}

// inspect examines one computer's own data while the others are awake. A log that is whole
// again is moved back to where the store finds it.
func (fl *Fleet) inspect(ctx context.Context, p *place) error {
	var r *recovery.Report
	err := fl.machine.Reserve.RetryWithRoom(ctx, func() error { // it waits for the log's server
		return fl.Bus.WithFiles(func() (err error) {
			if r, err = recovery.FinishAndInspectOne(ctx, fl.Dir, p.cid); err != nil {
				return err
			}
			return r.Unfinished[p.cid]
		})
	})
	if r == nil {
		return err
	}
	held, err := fl.held(ctx, r, p.cid)
	if err != nil {
		return err
	}
	if held {
		return errors.Join(fl.again(Restart{}), r.Refusal(p.cid))
	}
	if err := fl.Bus.WithFiles(func() error { return recovery.Arrange(fl.Dir, r) }); err != nil {
		return err
	}
	fl.counting.Lock()
	delete(fl.counted, p.cid) // it may be another log than the one that was counted
	fl.counting.Unlock()
	fl.damage.Lock()
	defer fl.damage.Unlock()
	fl.Report.Set(p.cid, r)
	if err := fl.Report.Refusal(p.cid); err != nil {
		return err
	}
	fl.mu.Lock()
	defer fl.mu.Unlock()
	p.logClosed = false // it was examined, so whoever opens it next need not examine it again
	return nil
}

// held says that a damaged log was whole when the store opened it, and is still open there:
// it can only be set apart once everything is closed.
func (fl *Fleet) held(ctx context.Context, r *recovery.Report, cid contract.CID) (bool, error) {
	if !r.LogDamaged(cid) {
		return false, nil
	}
	return fl.Bus.Serves(ctx, cid)
}

// Restart says what has to be done while nothing is open.
type Restart struct {
	Recover bool // recover what is damaged before starting again
	// Only are the computers that are recovered; nil: all.
	Only []contract.CID
	// Histories are the computers of which the history of checkpoints is damaged.
	Histories []contract.CID
}

// Recover implements control.Computers. The others are awake meanwhile; only what
// all share is recovered with everything closed, and then everything starts anew.
func (fl *Fleet) Recover(_ context.Context, cid contract.CID) error {
	fl.mu.Lock()
	p := fl.find(cid)
	damaged := p != nil && p.state == view.StateDamaged
	var histories []contract.CID
	if damaged {
		histories = historyOf(cid, p.err)
	}
	fl.mu.Unlock()
	switch {
	case p == nil:
		return noComputer("computer.Recover", cid)
	case !damaged:
		return fault.New("computer.Recover", fault.Conflict, "", errors.New("nothing of this computer is damaged"))
	}
	r := Restart{Recover: true, Only: []contract.CID{cid}, Histories: histories}
	if !fl.Report.Usable() {
		return fl.again(r)
	}
	fl.begin(p, view.WakeRequest{}, func(ctx context.Context) error { return fl.recoverOne(ctx, p, r) })
	return nil
}

// historyOf is the computer whose history may be given up for the error that kept it from
// waking. Other damage is examined again, and does not justify that.
func historyOf(cid contract.CID, err error) []contract.CID {
	if consistency.IsHistoryDamage(err) {
		return []contract.CID{cid}
	}
	return nil
}

// recoverOne recovers one computer that nobody has open.
func (fl *Fleet) recoverOne(ctx context.Context, p *place, r Restart) error {
	var now *recovery.Report
	held := false
	err := fl.Bus.WithFiles(func() (err error) {
		if now, err = recovery.FinishAndInspectOne(ctx, fl.Dir, p.cid); err == nil {
			held, err = fl.held(ctx, now, p.cid)
		}
		return err
	})
	if err != nil {
		return err
	}
	if held {
		return errors.Join(fl.again(r), now.Refusal(p.cid))
	}
	var done *recovery.Result
	err = fl.machine.Reserve.RetryWithRoom(ctx, func() (err error) {
		done, err = recovery.Recover(ctx, recovery.Options{
			Dir: fl.Dir, Driver: fl.Driver.Name(), Logger: fl.Logger, Only: r.Only, Histories: r.Histories, Bus: fl.Bus,
		})
		return err
	})
	fl.mu.Lock()
	p.failed = err
	fl.mu.Unlock()
	fl.damage.Lock()
	fl.Report.Failed = nil // the failure of an earlier recovery
	fl.damage.Unlock()
	if err != nil {
		fl.Logger.Error("a computer could not be recovered", "computer", string(p.cid), "error", err)
		return fl.inspect(ctx, p)
	}
	if note, ok := done.Computers[p.cid]; ok {
		fl.Logger.Info("a computer was recovered", "computer", string(p.cid), "events", note.Kept, "lost", note.Lost, "aside", done.Aside)
	}
	return fl.inspect(ctx, p)
}
