package upkeep

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/datadir"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/state"
	"choir.dev/choiros/internal/workspace"
)

// A scrub reads data that is seldom read, so that damage is found while another copy can
// still repair it. One slice is small, and a pass covers everything.
const (
	scrubSoon   = 15 * time.Second // after the wake, so that damage from the time asleep is soon reported; and where the last slice should go on
	scrubEvery  = 5 * time.Minute
	scrubEvents = 2000 // events of the log, compared with the state, in one slice
	scrubBlobs  = 200  // blobs read completely, in one slice
)

// scrub is the position of a pass and what it found.
type scrub struct {
	mu    sync.Mutex
	found map[string]finding // by the part that is damaged

	after uint64        // sequence up to which log and state were compared
	link  contract.Link // of that event
	ref   contract.BlobRef

	unread    bool      // the last slice found damage in the history and did not read all of that
	notBefore time.Time // when the state may be compared with the log again

	checking sync.Mutex   // held while the state is compared with the log
	waiting  atomic.Int32 // how many callers wait for that
}

// finding is damage that could not be repaired.
type finding struct {
	what  string
	since time.Time
}

// Scrub runs one slice after another until the computer closes. A slice that the computer
// was too busy for, and the next one where damage was found, come soon: so that somebody who
// is told of damage is soon told of all of it.
func (u *Upkeep) Scrub(ctx context.Context) error {
	tick := time.NewTimer(scrubSoon)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		if u.options.Busy() {
			tick.Reset(scrubSoon)
			continue
		}
		if err := u.Slice(ctx); err != nil && ctx.Err() == nil {
			return err // the supervisor reports it, and starts the service again
		}
		next := scrubEvery
		if u.scrub.unread {
			next = scrubSoon
		}
		tick.Reset(next)
	}
}

// Slice examines a part of the log, the state, the blobs and the history. What another copy
// contains is repaired; the rest is reported.
func (u *Upkeep) Slice(ctx context.Context) error {
	if err := u.options.State.CaughtUp(ctx, u.options.Log); err != nil {
		return err
	}
	return errors.Join(u.scrubState(ctx), u.scrubLog(ctx), u.scrubBlobs(ctx), u.scrubHistory(ctx), u.scrubTables(ctx))
}

// tablesEvery is how often everything that was projected is compared with the log,
// tablesAgain when a failed comparison is tried again, and tablesPause the pause between
// two batches of events.
const (
	tablesEvery = 24 * time.Hour
	tablesAgain = time.Hour
	tablesPause = 100 * time.Millisecond
)

// tablesFile contains the time of the last comparison, so that it is not repeated at each
// wake.
const tablesFile = "state.compared"

func (u *Upkeep) tables() string { return filepath.Join(u.options.Dir, tablesFile) }

// scrubTables replays the log, slowly, into a file beside the state and compares the two: a
// row that differs from the log is damage, and the state is made anew. There must be disk
// space for the file.
func (u *Upkeep) scrubTables(ctx context.Context) error {
	if time.Now().Before(u.scrub.notBefore) {
		return nil
	}
	if b, err := os.ReadFile(u.tables()); err == nil {
		if at, err := time.Parse(time.RFC3339, string(b)); err == nil && time.Since(at) < tablesEvery && time.Since(at) >= 0 {
			return nil
		}
	}
	st, err := os.Stat(u.options.State.Path())
	if err != nil {
		return err
	}
	free, err := u.options.Free()
	if err != nil || free.Bytes < datadir.SpaceLow+2*st.Size() {
		return err // a full disk is reported elsewhere
	}
	report, err := u.checkState(ctx, pacedLog{u.options.Log, u.options.Busy, &u.scrub.waiting})
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err != nil { // for example a lost blob, which is reported by itself
		u.options.Logger.Warn("the state could not be compared with the log; it is tried again later", "error", err)
		u.scrub.notBefore = time.Now().Add(tablesAgain)
		return nil
	}
	if !report.Clean() {
		why := report.Unreadable
		for _, d := range report.Differences {
			why = fmt.Sprintf("its table %s is not what the log says", d.Table)
			u.options.Logger.Error("the state is not what the log says", "table", d.Table, "have", d.Have, "want", d.Want)
		}
		if err := u.healState(ctx, why); err != nil {
			return err
		}
	}
	return datadir.WriteFile(u.tables(), []byte(time.Now().UTC().Format(time.RFC3339)), 0o600)
}

// checkState compares the state with a log, one caller at a time.
func (u *Upkeep) checkState(ctx context.Context, log state.Log) (state.Report, error) {
	u.scrub.checking.Lock()
	defer u.scrub.checking.Unlock()
	return state.Check(ctx, u.options.State.Path(), log, state.WithBlobs(u.options.Blobs), state.WithLogger(u.options.Logger))
}

// pacedLog is a log that is read with pauses, and not while a run works; without pauses if
// somebody waits for the comparison.
type pacedLog struct {
	state.Log
	busy    func() bool
	waiting *atomic.Int32
}

// Read implements state.Log.
func (s pacedLog) Read(ctx context.Context, after uint64, limit int) ([]contract.Event, error) {
	for pause := true; pause && s.waiting.Load() == 0; pause = s.busy() {
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(tablesPause):
		}
	}
	return s.Log.Read(ctx, after, limit)
}

// scrubState lets SQLite check the file; a damaged one is made anew.
func (u *Upkeep) scrubState(ctx context.Context) error {
	if u.scrub.after != 0 {
		return nil // once in a pass
	}
	text, err := u.options.State.QuickCheck(ctx)
	if err != nil {
		return err
	}
	if text == "" {
		u.whole("state.sqlite")
		return nil
	}
	return u.healState(ctx, text)
}

// healState replays the log into a state that differs from the log.
func (u *Upkeep) healState(ctx context.Context, why string) error {
	_, err := u.options.State.Replace(ctx, u.options.Log)
	if err != nil && !fault.Is(err, fault.Invalid) {
		return err
	}
	if err != nil {
		return u.damaged(ctx, "state.sqlite", why+"; "+fault.HintOf(err), "")
	}
	return u.damaged(ctx, "state.sqlite", why, "replayed from the log")
}

// scrubLog reads a slice of the log, and compares it with the hash chain and the state's
// rows with it.
func (u *Upkeep) scrubLog(ctx context.Context) error {
	s := &u.scrub
	for n := 0; n < scrubEvents; {
		events, err := u.options.Log.Read(ctx, s.after, scrubEvents-n)
		if fault.Is(err, fault.Damaged) {
			return u.damaged(ctx, "nats", fault.Text(err), "")
		}
		if err != nil {
			return err
		}
		if len(events) == 0 {
			s.after, s.link = 0, "" // for the next pass
			return nil
		}
		rows, err := u.options.State.EventsAfter(ctx, s.after, len(events))
		if err != nil {
			return err
		}
		for i, e := range events {
			b, err := contract.Stored(e)
			if err != nil {
				return err
			}
			if e.Prev != "" && s.link != "" && e.Prev != s.link {
				return u.damaged(ctx, "nats", fmt.Sprintf("event %d does not continue the chain", e.Sequence), "")
			}
			s.link = contract.LinkOf(b)
			if i >= len(rows) {
				break // it is not projected yet
			}
			row, err := contract.Stored(rows[i].Event)
			if err != nil {
				return err
			}
			if string(row) != string(b) {
				if err := u.healState(ctx, fmt.Sprintf("its row of event %d is not what the log holds", e.Sequence)); err != nil {
					return err
				}
			}
		}
		s.after = events[len(events)-1].Sequence
		n += len(events)
	}
	return nil
}

// scrubBlobs reads some of the blobs that events name completely.
func (u *Upkeep) scrubBlobs(ctx context.Context) error {
	refs, err := u.options.State.NeededBlobs(ctx)
	if err != nil {
		return err
	}
	order := slices.Sorted(maps.Keys(refs))
	from, exact := slices.BinarySearch(order, u.scrub.ref)
	if exact {
		from++
	}
	order = order[from:min(len(order), from+scrubBlobs)]
	if u.scrub.ref = ""; len(order) == scrubBlobs {
		u.scrub.ref = order[len(order)-1]
	}
	lost := map[contract.BlobRef]string{}
	for _, ref := range order {
		err := u.readBlob(ctx, ref)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err == nil:
			u.whole(blobPart(u.options.CID, ref))
		case fault.Is(err, fault.NotFound):
			lost[ref] = fmt.Sprintf("it is gone, and event %d names it", refs[ref])
		default:
			lost[ref] = fmt.Sprintf("it can't be read, and event %d names it: %s", refs[ref], fault.Text(err))
		}
	}
	return u.healBlobs(ctx, lost)
}

func blobPart(cid contract.CID, ref contract.BlobRef) string {
	return "blobs/" + string(cid) + "/" + ref.Hex()
}

// healBlobs stores lost blobs again if the files, the trash or the history have the same
// content, and reports the others.
func (u *Upkeep) healBlobs(ctx context.Context, lost map[contract.BlobRef]string) error {
	if len(lost) == 0 {
		return nil
	}
	healed := map[contract.BlobRef]string{}
	found, err := u.options.Workspace.Find(ctx, slices.Sorted(maps.Keys(lost)))
	if err != nil {
		return err
	}
	for _, f := range found {
		same, err := u.storeFound(ctx, f)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil { // the blob is reported, and searched for again
			u.options.Logger.Warn("a lost blob was found and could not be stored", "blob", f.Ref, "where", f.Where, "error", err)
		}
		if same && err == nil {
			healed[f.Ref] = f.Where
		}
	}
	for _, ref := range slices.Sorted(maps.Keys(lost)) {
		if err := u.damaged(ctx, blobPart(u.options.CID, ref), lost[ref], healed[ref]); err != nil {
			return err
		}
	}
	return nil
}

// storeFound stores a content that was found and says whether it was still the same; other
// content is collected like any blob that no event names.
func (u *Upkeep) storeFound(ctx context.Context, f workspace.Found) (bool, error) {
	r, err := u.options.Workspace.Open(ctx, f)
	if err != nil {
		return false, err
	}
	ref, _, err := u.options.Blobs.Put(ctx, u.options.CID, r)
	return ref == f.Ref, errors.Join(err, r.Close())
}

func (u *Upkeep) readBlob(ctx context.Context, ref contract.BlobRef) error {
	r, _, err := u.options.Blobs.Open(ctx, u.options.CID, ref)
	if err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, r) // reading to the end compares the hash
	return errors.Join(err, r.Close())
}

// scrubHistory reads a slice of the history's objects.
func (u *Upkeep) scrubHistory(ctx context.Context) error {
	u.scrub.unread = false
	report, err := u.options.Workspace.Scrub(ctx, workspace.ScrubBudget{})
	if err != nil {
		return err
	}
	u.scrub.unread = len(report.Damaged) > 0 && !report.Done
	for _, a := range report.Aside {
		// The event has a derived id, so that a report after a restart is the same event.
		if _, err := u.options.Log.Append(ctx, contract.Draft{
			ID: contract.DeriveID(string(u.options.CID), a.Part()), Actor: contract.System(), Type: "damage.found",
			Data: contract.DamageFound{Part: contract.Line(contract.Clip(a.Part(), 300)), What: contract.Line(a.Text()), Healed: contract.Clip(a.Kept(), 300)},
		}); err != nil {
			return err
		}
	}
	for _, d := range report.Damaged {
		if err := u.damaged(ctx, d.Part(), d.Text(), d.Healed); err != nil {
			return err
		}
	}
	return nil
}

// damaged records damage once: in the log, in the program's log and, if it could not be
// repaired, in what the user is shown.
func (u *Upkeep) damaged(ctx context.Context, part, what, healed string) error {
	u.scrub.mu.Lock()
	if u.scrub.found == nil {
		u.scrub.found = map[string]finding{}
	}
	_, known := u.scrub.found[part]
	if healed != "" {
		delete(u.scrub.found, part)
	} else if !known {
		u.scrub.found[part] = finding{what, time.Now()}
	}
	u.scrub.mu.Unlock()
	if known && healed == "" {
		return nil
	}
	u.options.Logger.Error("damage was found", "part", part, "what", what, "healed", healed)
	_, err := u.options.Log.Append(ctx, contract.Draft{
		Actor: contract.System(), Type: "damage.found",
		Data: contract.DamageFound{Part: contract.Line(contract.Clip(part, 300)), What: contract.Line(what), Healed: healed},
	})
	return err
}

// whole forgets damage that is repaired.
func (u *Upkeep) whole(part string) {
	u.scrub.mu.Lock()
	defer u.scrub.mu.Unlock()
	delete(u.scrub.found, part)
}

// DamageNotes lists what is damaged: which file, since when, and what to do.
func (u *Upkeep) DamageNotes() []string {
	u.scrub.mu.Lock()
	defer u.scrub.mu.Unlock()
	var out []string
	for _, part := range slices.Sorted(maps.Keys(u.scrub.found)) {
		f := u.scrub.found[part]
		out = append(out, fmt.Sprintf("damaged since %s: %s: %s. Restore it from a backup; what does not need it goes on.", f.since.UTC().Format("2006-01-02 15:04"), part, f.what))
	}
	return out
}
