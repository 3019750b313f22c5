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

// This file looks after what all computers of a machine share: how much space is left, and
// whether the file of accounts is sound.
const (
	spaceEvery    = time.Minute
	accountsEvery = time.Hour
)

// upkeep is what the last checks found.
type upkeep struct {
	mu       sync.Mutex
	space    view.Finding
	accounts view.Finding
	since    map[string]time.Time // by finding: since when it is not ok
}

// ownUpkeep checks space and accounts at once, and then again and again until the fleet closes.
func (fl *Fleet) ownUpkeep() {
	fl.own("looking after the machine", func(ctx context.Context) error {
		space, accounts := time.NewTicker(spaceEvery), time.NewTicker(accountsEvery)
		defer space.Stop()
		defer accounts.Stop()
		fl.checkSpace()
		fl.sweep()
		for {
			select {
			case <-ctx.Done():
				return nil
			case <-space.C:
				fl.checkSpace()
			case <-accounts.C:
				fl.checkAccounts(ctx)
				fl.sweep()
			}
		}
	})
}

// spaceLeft says whether the free space is enough. What takes the rest is only counted by
// doctor, for that takes a while.
func spaceLeft(free datadir.Room) view.Finding {
	f := view.Finding{ID: "space", Status: "ok", Detail: free.String()}
	if free.Scarce() {
		f.Status, f.Hint = "warn", "Free some on the disk that holds the data directory; `choir doctor` says what takes it."
	}
	return f
}

// sweep deletes what was removed long enough ago.
func (fl *Fleet) sweep() {
	if err := fl.sweepRemoved(fl.ctx, time.Now()); err != nil && fl.ctx.Err() == nil {
		fl.Logger.Warn("a computer that was removed could not be taken away for good; it is tried again", "error", err)
	}
}

func (fl *Fleet) checkSpace() {
	free, err := fl.Dir.Free()
	f := spaceLeft(free)
	if err != nil {
		f = view.Finding{ID: "space", Status: "warn", Detail: "how much space is free for the data directory is not known: " + fault.Text(err)}
	}
	fl.noticed(&fl.upkeep.space, f)
}

// checkAccounts has SQLite check the file of accounts. Of damage in it there is no other
// copy.
func (fl *Fleet) checkAccounts(ctx context.Context) view.Finding {
	f := view.Finding{ID: "accounts", Status: "ok", Detail: "control.sqlite is whole"}
	err := fl.Spending.QuickCheck(ctx)
	if ctx.Err() != nil {
		return f // the fleet closes
	}
	if err != nil {
		f = view.Finding{ID: "accounts", Status: "fail", Detail: fault.Text(err), Hint: fault.HintOf(err)}
	}
	return fl.noticed(&fl.upkeep.accounts, f)
}

// noticed stores a finding, logs a change of it, and adds since when it is not ok.
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

// notices are findings about the machine that every computer's user is shown.
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
