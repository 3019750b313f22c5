package fleet

import (
	"context"
	"slices"
	"sync"
	"time"

	"choir.dev/choiros/internal/datadir"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/view"
)

// What all computers of a machine share is looked after here: how much space is
// left, and whether the file of accounts holds together.
const (
	spaceEvery    = time.Minute
	accountsEvery = time.Hour
)

// upkeep is what was last seen of it.
type upkeep struct {
	mu       sync.Mutex
	space    view.Finding
	accounts view.Finding
	since    map[string]time.Time // by finding: since when it is not fine
	done     sync.WaitGroup
}

// lookAfter looks at once, and again until the host closes.
func (fl *Fleet) lookAfter() {
	fl.upkeep.done.Go(func() {
		space, accounts := time.NewTicker(spaceEvery), time.NewTicker(accountsEvery)
		defer space.Stop()
		defer accounts.Stop()
		fl.lookAtSpace()
		fl.sweep()
		for {
			select {
			case <-fl.ctx.Done():
				return
			case <-space.C:
				fl.lookAtSpace()
			case <-accounts.C:
				fl.lookAtAccounts(fl.ctx)
				fl.sweep()
			}
		}
	})
}

// spaceLeft says whether what is free is enough; what takes the others,
// which takes a while to count, is said by doctor.
func spaceLeft(free datadir.Room) view.Finding {
	f := view.Finding{ID: "space", Status: "ok", Detail: free.String()}
	if free.Scarce() {
		f.Status, f.Hint = "warn", "Free some on the disk that holds the data directory; `choir doctor` says what takes it."
	}
	return f
}

// sweep takes away what was removed long enough ago.
func (fl *Fleet) sweep() {
	if err := fl.sweepRemoved(fl.ctx, time.Now()); err != nil && fl.ctx.Err() == nil {
		fl.Logger.Warn("a computer that was removed could not be taken away for good; it is tried again", "error", err)
	}
}

func (fl *Fleet) lookAtSpace() {
	free, err := fl.Dir.Free()
	f := spaceLeft(free)
	if err != nil {
		f = view.Finding{ID: "space", Status: "warn", Detail: "how much space is free for the data directory is not known: " + fault.Text(err)}
	}
	fl.noticed(&fl.upkeep.space, f)
}

// lookAtAccounts has SQLite look through the file of accounts. What is damaged in
// it no other copy holds.
func (fl *Fleet) lookAtAccounts(ctx context.Context) view.Finding {
	f := view.Finding{ID: "accounts", Status: "ok", Detail: "control.sqlite is whole"}
	err := fl.Spending.QuickCheck(ctx)
	if ctx.Err() != nil {
		return f // nobody waits for it any more
	}
	if err != nil {
		f = view.Finding{ID: "accounts", Status: "fail", Detail: fault.Text(err), Hint: fault.HintOf(err)}
	}
	return fl.noticed(&fl.upkeep.accounts, f)
}

// noticed keeps a finding, tells a change of it in the program's log, and adds
// since when it is not fine.
func (fl *Fleet) noticed(last *view.Finding, f view.Finding) view.Finding {
	u := &fl.upkeep
	u.mu.Lock()
	defer u.mu.Unlock()
	if f.Status == "ok" {
		delete(u.since, f.ID)
	} else {
		if _, known := u.since[f.ID]; !known {
			if u.since == nil {
				u.since = map[string]time.Time{}
			}
			u.since[f.ID] = time.Now()
			fl.Logger.Warn("something is not as it should be", "what", f.ID, "detail", f.Detail, "hint", f.Hint)
		}
		f.Detail += ", since " + u.since[f.ID].UTC().Format("2006-01-02 15:04")
	}
	*last = f
	return f
}

// notices are what every computer's user is told of the machine.
func (fl *Fleet) notices() []string {
	fl.upkeep.mu.Lock()
	defer fl.upkeep.mu.Unlock()
	var out []string
	for _, f := range []view.Finding{fl.upkeep.space, fl.upkeep.accounts} {
		if f.Status != "" && f.Status != "ok" {
			out = append(out, f.Detail+". "+f.Hint)
		}
	}
	return slices.Clip(out)
}
