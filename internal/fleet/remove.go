package fleet

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/datadir"
	"choir.dev/choiros/internal/durable"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/recovery"
	"choir.dev/choiros/internal/sandbox/local/hostfs"
	"choir.dev/choiros/internal/view"
)

// removedFile marks the directory of a computer that was removed: all of it stays where it
// was, and only putting it back uses it. After removedFor it is deleted for good; goneDir
// is the prefix of the directory's name meanwhile.
const (
	removedFile = "removed"
	removedFor  = 7 * 24 * time.Hour
	goneDir     = ".gone-"
)

// betweenRuns bounds how much the time between two runs of the program ages what was
// removed. A clock that is set forward, or that was behind and is corrected, ages nothing,
// so that no computer is deleted before its owner has had the time.
const betweenRuns = 24 * time.Hour

// removal is the content of that file.
type removal struct {
	At   time.Time     `json:"at"`
	By   string        `json:"by"`
	Age  time.Duration `json:"age"`  // how long it has been removed, as far as the program saw
	Seen time.Time     `json:"seen"` // when the age was last updated
}

// until is a removal at a later time, measured by this process' monotonic clock.
func (r removal) until(now time.Time) removal {
	r.Age, r.Seen = r.Age+max(0, now.Sub(r.Seen)), now
	return r
}

// gone is when it is deleted for good if the program runs until then.
func (r removal) gone() time.Time { return r.Seen.Add(removedFor - r.Age) }

// find returns the place of a computer that exists and was not removed, else nil. fl.mu is
// held.
func (fl *Fleet) find(cid contract.CID) *place {
	if p := fl.places[cid]; p != nil && p.removed == nil {
		return p
	}
	return nil
}

// Remove implements control.Computers. The computer is put to sleep, whoever uses it;
// runs that have not ended go on when it is put back.
func (fl *Fleet) Remove(ctx context.Context, cid contract.CID, by string) (view.Computer, error) {
	const op = "fleet.Remove"
	now := time.Now().UTC()
	r := removal{At: now, By: by, Seen: now}
	var was *place
	p, release, err := fl.still(ctx, cid, func(p *place) {
		if p.removed == nil {
			at := *p
			was, p.removed = &at, &r // from here on nobody begins to wake it
		}
	})
	if err != nil {
		return view.Computer{}, fault.Wrap(op, err)
	}
	defer release()
	if was == nil {
		return fl.showRemoved(p), nil
	}
	info, err := fl.writeRemoval(ctx, *was, r)
	if err != nil {
		fl.mu.Lock()
		p.removed = nil
		fl.mu.Unlock()
		return view.Computer{}, fault.Wrap(op, err)
	}
	fl.mu.Lock()
	p.round++ // it is not tried again
	c := p.computer
	info.State = view.StateAsleep
	p.computer, p.state, p.err, p.known, p.name = nil, view.StateAsleep, nil, info, info.Name
	if c != nil {
		p.close(c)
	}
	fl.mu.Unlock()
	if c != nil {
		fl.closeComputer(c)
	}
	fl.Logger.Info("a computer was removed", "computer", string(cid), "by", by)
	return fl.showRemoved(p), nil
}

// writeRemoval records that a computer was removed, and returns its description.
func (fl *Fleet) writeRemoval(ctx context.Context, was place, r removal) (view.Computer, error) {
	info, err := fl.show(ctx, was)
	if err != nil {
		return view.Computer{}, err
	}
	return info, fl.keepRemoval(was.cid, r)
}

func (fl *Fleet) keepRemoval(cid contract.CID, r removal) error {
	b, err := json.Marshal(r)
	if err != nil {
		return err
	}
	return datadir.WriteFile(fl.Dir.Computer(cid, removedFile), b, 0o600)
}

// still returns a place that is neither waking nor falling asleep nor open apart, removed
// or not, and keeps others from removing and putting back meanwhile. The computer may begin
// to wake as soon as fl.mu is released; then is called before that.
func (fl *Fleet) still(ctx context.Context, cid contract.CID, then func(*place)) (*place, func(), error) {
	ctx, cancel := context.WithTimeout(ctx, wakeWait)
	defer cancel()
	for {
		fl.removing.Lock()
		fl.mu.Lock()
		p := fl.places[cid]
		if p == nil || fl.closed.Load() {
			fl.mu.Unlock()
			fl.removing.Unlock()
			return nil, nil, noComputer("", cid)
		}
		busy, what := p.busy()
		if busy == nil && then != nil {
			then(p)
		}
		fl.mu.Unlock()
		if busy == nil {
			return p, fl.removing.Unlock, nil
		}
		fl.removing.Unlock()
		select {
		case <-busy:
		case <-ctx.Done():
			return nil, nil, fault.New("", fault.Unavailable, "Try again in a moment.", fmt.Errorf("%s %s", p.name, what))
		}
	}
}

// PutBack implements control.Computers.
func (fl *Fleet) PutBack(ctx context.Context, cid contract.CID) (view.Computer, error) {
	const op = "fleet.PutBack"
	p, release, err := fl.still(ctx, cid, nil)
	if err != nil {
		return view.Computer{}, fault.Wrap(op, err)
	}
	defer release()
	if p.removed == nil {
		return fl.listed(ctx, cid)
	}
	if err := os.Remove(fl.Dir.Computer(cid, removedFile)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return view.Computer{}, fault.Wrap(op, err)
	}
	if err := durable.SyncDir(fl.Dir.Computer(cid)); err != nil {
		return view.Computer{}, fault.Wrap(op, err)
	}
	fl.mu.Lock()
	p.removed = nil
	fl.mu.Unlock()
	fl.Logger.Info("a computer that was removed is back", "computer", string(cid))
	if err := fl.Report.Refusal(cid); err != nil {
		fl.settle(p, nil, err)
	} else {
		fl.begin(p, view.WakeRequest{}, nil) // so that its runs go on
	}
	if err := fl.ended(ctx, p); err != nil {
		return view.Computer{}, fault.Wrap(op, err)
	}
	return fl.listed(ctx, cid)
}

// Removed implements control.Computers.
func (fl *Fleet) Removed(context.Context) ([]view.Computer, error) {
	fl.mu.Lock()
	defer fl.mu.Unlock()
	var out []view.Computer
	for _, cid := range fl.order {
		if p := fl.places[cid]; p.removed != nil {
			out = append(out, fl.removedOf(p))
		}
	}
	return out, nil
}

func (fl *Fleet) showRemoved(p *place) view.Computer {
	fl.mu.Lock()
	defer fl.mu.Unlock()
	return fl.removedOf(p)
}

// removedOf describes a removed computer. fl.mu is held.
func (fl *Fleet) removedOf(p *place) view.Computer {
	info := p.known
	info.ID, info.Name, info.State, info.Driver = p.cid, p.name, view.StateAsleep, fl.Driver.Name()
	info.Removed, info.Gone = p.removed.At, p.removed.gone()
	return info
}

// readRemoval reads whether a computer was removed; nil: it was not. If the file does not
// say when, its modification time counts. A file without Seen is of an earlier version, or
// damaged, and the whole time counts from now.
func readRemoval(file string, now time.Time) (*removal, error) {
	b, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var r removal
	if json.Unmarshal(b, &r) == nil && !r.At.IsZero() {
		r.Age, r.Seen = max(0, r.Age)+min(max(0, now.Sub(r.Seen)), betweenRuns), now
		return &r, nil
	}
	info, err := os.Lstat(file)
	if err != nil {
		return nil, err
	}
	return &removal{At: info.ModTime(), Seen: now}, nil
}

// sweepRemoved updates the age of removed computers, deletes those that are old enough, and
// completes what an earlier sweep left unfinished.
func (fl *Fleet) sweepRemoved(ctx context.Context, now time.Time) error {
	fl.mu.Lock()
	var removed []contract.CID
	for cid, p := range fl.places {
		if p.removed != nil {
			removed = append(removed, cid)
		}
	}
	fl.mu.Unlock()
	var errs []error
	for _, cid := range removed {
		errs = append(errs, fl.age(ctx, cid, now))
	}
	return errors.Join(append(errs, fl.clearGone(ctx))...)
}

// age updates the age of one removed computer.
func (fl *Fleet) age(ctx context.Context, cid contract.CID, now time.Time) error {
	p, release, err := fl.still(ctx, cid, nil)
	if err != nil {
		return err
	}
	defer release()
	if p.removed == nil {
		return nil // it was put back in the meantime
	}
	r := p.removed.until(now)
	if r.Age >= removedFor {
		return fl.purge(ctx, cid)
	}
	if err := fl.keepRemoval(cid, r); err != nil {
		return err
	}
	fl.mu.Lock()
	p.removed = &r
	fl.mu.Unlock()
	return nil
}

// purge deletes one computer. Its directory is renamed and deleted last: a crash meanwhile
// leaves a computer that is still removed, or none. Nobody removes or puts back meanwhile.
func (fl *Fleet) purge(ctx context.Context, cid contract.CID) error {
	if err := errors.Join(fl.Bus.Remove(ctx, cid), fl.Blobs.Remove(ctx, cid)); err != nil {
		return err
	}
	if err := fl.Dir.Forget([]string{filepath.Join("computers", string(cid)), filepath.Join("blobs", string(cid))}); err != nil {
		return err
	}
	at := fl.Dir.Path("computers")
	if err := os.Rename(filepath.Join(at, string(cid)), filepath.Join(at, goneDir+string(cid))); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := durable.SyncDir(at); err != nil {
		return err
	}
	fl.mu.Lock()
	delete(fl.places, cid)
	fl.order = slices.DeleteFunc(fl.order, func(c contract.CID) bool { return c == cid })
	fl.mu.Unlock()
	fl.Logger.Info("a computer that was removed is gone for good", "computer", string(cid))
	return nil
}

// clearGone deletes the directories of deleted computers. Boxes wrote in them.
func (fl *Fleet) clearGone(ctx context.Context) error {
	at := fl.Dir.Path("computers")
	list, err := os.ReadDir(at)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	gone := slices.DeleteFunc(list, func(e fs.DirEntry) bool { return !strings.HasPrefix(e.Name(), goneDir) })
	if len(gone) == 0 {
		return nil
	}
	top, err := hostfs.Open(at)
	if err != nil {
		return err
	}
	var errs []error
	for _, e := range gone {
		errs = append(errs, top.RemoveAll(ctx, e.Name()))
	}
	return errors.Join(append(errs, top.Close())...)
}

// takeUp makes a place for a computer found in the data directory.
func (fl *Fleet) takeUp(cid contract.CID, r *recovery.Report) (*place, error) {
	p := &place{cid: cid, name: r.Names[cid], created: r.Created[cid], last: r.Last(cid), state: view.StateAsleep}
	if p.name == "" {
		p.name = "Choir"
	}
	var err error
	p.removed, err = readRemoval(fl.Dir.Computer(cid, removedFile), time.Now())
	return p, err
}
