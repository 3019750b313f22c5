package computer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
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

// A scrub reads what nobody asks for, so that damage is found while another
// copy can still heal it. One slice is small, and a pass goes through all.
const (
	scrubFirst  = 15 * time.Second // after it woke: what was lost while it was asleep is named soon
	scrubEvery  = 5 * time.Minute
	scrubEvents = 2000 // of the log and the state, in one slice
	scrubBlobs  = 200  // read whole, in one slice
)

// scrub is how far a pass has come and what it found.
type scrub struct {
	mu    sync.Mutex
	found map[string]finding // by part

	after uint64        // event up to which log and state were compared
	link  contract.Link // of that event
	ref   contract.BlobRef

	notBefore time.Time // when the state may be compared with the log again

	checking sync.Mutex   // held by who compares the state with the log
	hurry    atomic.Int32 // how many wait for that
}

// finding is damage that nothing healed.
type finding struct {
	what  string
	since time.Time
}

// keepScrubbing runs slice after slice until the computer closes.
func (c *Computer) keepScrubbing(ctx context.Context) error {
	tick := time.NewTimer(scrubFirst)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			tick.Reset(scrubEvery)
		}
		if c.runs.Busy() {
			continue
		}
		if err := c.scrubSlice(ctx); err != nil && ctx.Err() == nil {
			return err // the tree tells it, and starts again
		}
	}
}

// scrubSlice looks through a part of the log, the state, the blobs and the
// history. What another copy holds is healed; the rest is named.
func (c *Computer) scrubSlice(ctx context.Context) error {
	if err := c.state.CaughtUp(ctx, c.log); err != nil {
		return err
	}
	return errors.Join(c.scrubState(ctx), c.scrubLog(ctx), c.scrubBlobs(ctx), c.scrubHistory(ctx), c.scrubTables(ctx))
}

// tablesEvery is how often all that was projected is compared with the log,
// tablesAgain when it is tried again after it could not be, and tablesPause how
// long that waits between two batches of events.
const (
	tablesEvery = 24 * time.Hour
	tablesAgain = time.Hour
	tablesPause = 100 * time.Millisecond
)

// tablesFile says, by its content, when that was done last: a wake is not a reason
// to do it again.
const tablesFile = "state.compared"

// scrubTables replays the log, slowly, into a file beside the state and compares
// the two: a row that is not what the log says is damage, and the state is made
// anew. There has to be space for the file.
func (c *Computer) scrubTables(ctx context.Context) error {
	if time.Now().Before(c.scrub.notBefore) {
		return nil
	}
	if b, err := os.ReadFile(c.path(tablesFile)); err == nil {
		if at, err := time.Parse(time.RFC3339, string(b)); err == nil && time.Since(at) < tablesEvery && time.Since(at) >= 0 {
			return nil
		}
	}
	st, err := os.Stat(c.state.Path())
	if err != nil {
		return err
	}
	free, err := c.machine.Dir.Free()
	if err != nil || free.Bytes < datadir.SpaceLow+2*st.Size() {
		return err // the space is told where it is looked after
	}
	report, err := c.checkState(ctx, slowly{c.log, func() bool { return c.runs != nil && c.runs.Busy() }, &c.scrub.hurry})
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err != nil { // such as a lost blob, which is named for itself
		c.logger.Warn("the state could not be compared with the log; it is tried again later", "error", err)
		c.scrub.notBefore = time.Now().Add(tablesAgain)
		return nil
	}
	if !report.Clean() {
		why := report.Unreadable
		for _, d := range report.Differences {
			why = fmt.Sprintf("its table %s is not what the log says", d.Table)
			c.logger.Error("the state is not what the log says", "table", d.Table, "have", d.Have, "want", d.Want)
		}
		if err := c.healState(ctx, why); err != nil {
			return err
		}
	}
	return datadir.WriteFile(c.path(tablesFile), []byte(time.Now().UTC().Format(time.RFC3339)), 0o600)
}

// checkState compares the state with a log, one at a time.
func (c *Computer) checkState(ctx context.Context, log state.Log) (state.Report, error) {
	c.scrub.checking.Lock()
	defer c.scrub.checking.Unlock()
	return state.Check(ctx, c.state.Path(), log, state.WithBlobs(c.machine.Blobs), state.WithLogger(c.logger))
}

// slowly is a log that is read with pauses, and not while a run works; in no time
// when somebody waits for the end of it.
type slowly struct {
	state.Log
	busy  func() bool
	hurry *atomic.Int32
}

// Read implements state.Log.
func (s slowly) Read(ctx context.Context, after uint64, limit int) ([]contract.Event, error) {
	for pause := true; pause && s.hurry.Load() == 0; pause = s.busy() {
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(tablesPause):
		}
	}
	return s.Log.Read(ctx, after, limit)
}

// scrubState has SQLite look through the file; a damaged one is made anew.
func (c *Computer) scrubState(ctx context.Context) error {
	if c.scrub.after != 0 {
		return nil // once a pass
	}
	text, err := c.state.QuickCheck(ctx)
	if err != nil {
		return err
	}
	if text == "" {
		c.whole("state.sqlite")
		return nil
	}
	return c.healState(ctx, text)
}

// healState replays the log over a state that is not what the log says.
func (c *Computer) healState(ctx context.Context, why string) error {
	_, err := c.state.Replace(ctx, c.log)
	if err != nil && !fault.Is(err, fault.Invalid) {
		return err
	}
	if err != nil {
		return c.damaged(ctx, "state.sqlite", why+"; "+fault.HintOf(err), "")
	}
	return c.damaged(ctx, "state.sqlite", why, "replayed from the log")
}

// scrubLog reads a slice of the log, holds it against the chain, and the
// state's rows against it.
func (c *Computer) scrubLog(ctx context.Context) error {
	s := &c.scrub
	for n := 0; n < scrubEvents; {
		events, err := c.log.Read(ctx, s.after, scrubEvents-n)
		if fault.Is(err, fault.Damaged) {
			return c.damaged(ctx, "nats", fault.Text(err), "")
		}
		if err != nil {
			return err
		}
		if len(events) == 0 {
			s.after, s.link = 0, "" // the next pass
			return nil
		}
		rows, err := c.state.EventsAfter(ctx, s.after, len(events))
		if err != nil {
			return err
		}
		for i, e := range events {
			b, err := contract.Stored(e)
			if err != nil {
				return err
			}
			if e.Prev != "" && s.link != "" && e.Prev != s.link {
				return c.damaged(ctx, "nats", fmt.Sprintf("event %d does not continue the chain", e.Sequence), "")
			}
			s.link = contract.LinkOf(b)
			if i >= len(rows) {
				break // not projected yet
			}
			row, err := contract.Stored(rows[i].Event)
			if err != nil {
				return err
			}
			if string(row) != string(b) {
				if err := c.healState(ctx, fmt.Sprintf("its row of event %d is not what the log holds", e.Sequence)); err != nil {
					return err
				}
			}
		}
		s.after = events[len(events)-1].Sequence
		n += len(events)
	}
	return nil
}

// scrubBlobs reads some of the blobs that events name, whole.
func (c *Computer) scrubBlobs(ctx context.Context) error {
	refs, err := c.state.NeededBlobs(ctx)
	if err != nil {
		return err
	}
	order := slices.Sorted(maps.Keys(refs))
	from, exact := slices.BinarySearch(order, c.scrub.ref)
	if exact {
		from++
	}
	order = order[from:min(len(order), from+scrubBlobs)]
	if c.scrub.ref = ""; len(order) == scrubBlobs {
		c.scrub.ref = order[len(order)-1]
	}
	lost := map[contract.BlobRef]string{}
	for _, ref := range order {
		err := c.readBlob(ctx, ref)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err == nil:
			c.whole(blobPart(c.cid, ref))
		case fault.Is(err, fault.NotFound):
			lost[ref] = fmt.Sprintf("it is gone, and event %d names it", refs[ref])
		default:
			lost[ref] = fmt.Sprintf("it can't be read, and event %d names it: %s", refs[ref], fault.Text(err))
		}
	}
	return c.healBlobs(ctx, lost)
}

func blobPart(cid contract.CID, ref contract.BlobRef) string {
	return "blobs/" + string(cid) + "/" + ref.Hex()
}

// healBlobs stores lost blobs again where the files, the trash or the history
// have the same content, and names the others.
func (c *Computer) healBlobs(ctx context.Context, lost map[contract.BlobRef]string) error {
	if len(lost) == 0 {
		return nil
	}
	healed := map[contract.BlobRef]string{}
	found, err := c.workspace.Find(ctx, slices.Sorted(maps.Keys(lost)))
	if err != nil {
		return err
	}
	for _, f := range found {
		same, err := c.storeFound(ctx, f)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil { // it is named, and looked for again
			c.logger.Warn("a lost blob was found and could not be stored", "blob", f.Ref, "where", f.Where, "error", err)
		}
		if same && err == nil {
			healed[f.Ref] = f.Where
		}
	}
	for _, ref := range slices.Sorted(maps.Keys(lost)) {
		if err := c.damaged(ctx, blobPart(c.cid, ref), lost[ref], healed[ref]); err != nil {
			return err
		}
	}
	return nil
}

// storeFound stores a content that was found and says whether it still was the
// same; another one is collected like any that nothing names.
func (c *Computer) storeFound(ctx context.Context, f workspace.Found) (bool, error) {
	r, err := c.workspace.Open(ctx, f)
	if err != nil {
		return false, err
	}
	ref, _, err := c.machine.Blobs.Put(ctx, c.cid, r)
	return ref == f.Ref, errors.Join(err, r.Close())
}

func (c *Computer) readBlob(ctx context.Context, ref contract.BlobRef) error {
	r, _, err := c.machine.Blobs.Open(ctx, c.cid, ref)
	if err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, r) // compares the hash at its end
	return errors.Join(err, r.Close())
}

// scrubHistory reads a slice of the history's objects.
func (c *Computer) scrubHistory(ctx context.Context) error {
	report, err := c.workspace.Scrub(ctx, workspace.ScrubBudget{})
	if err != nil {
		return err
	}
	for _, a := range report.Aside {
		// Under an id of its own: told again after a restart, it is the same event.
		if _, err := c.log.Append(ctx, contract.Draft{
			ID: contract.DeriveID(string(c.cid), a.Part()), Actor: contract.System(), Type: "damage.found",
			Data: contract.DamageFound{Part: contract.Line(contract.Clip(a.Part(), 300)), What: contract.Line(a.Text()), Healed: contract.Clip(a.Kept(), 300)},
		}); err != nil {
			return err
		}
	}
	for _, d := range report.Damaged {
		if err := c.damaged(ctx, d.Part(), d.Text(), d.Healed); err != nil {
			return err
		}
	}
	return nil
}

// damaged records damage, once: in the log, in the program's log and, while
// nothing has healed it, where the user looks.
func (c *Computer) damaged(ctx context.Context, part, what, healed string) error {
	c.scrub.mu.Lock()
	if c.scrub.found == nil {
		c.scrub.found = map[string]finding{}
	}
	_, known := c.scrub.found[part]
	if healed != "" {
		delete(c.scrub.found, part)
	} else if !known {
		c.scrub.found[part] = finding{what, time.Now()}
	}
	c.scrub.mu.Unlock()
	if known && healed == "" {
		return nil
	}
	c.logger.Error("damage was found", "part", part, "what", what, "healed", healed)
	return c.note(ctx, "damage.found", contract.DamageFound{Part: contract.Line(contract.Clip(part, 300)), What: contract.Line(what), Healed: healed})
}

// whole forgets damage that is not there any more.
func (c *Computer) whole(part string) {
	c.scrub.mu.Lock()
	defer c.scrub.mu.Unlock()
	delete(c.scrub.found, part)
}

// Wounds says what is damaged: which file, since when, what to do.
func (c *Computer) Wounds() []string {
	c.scrub.mu.Lock()
	defer c.scrub.mu.Unlock()
	var out []string
	for _, part := range slices.Sorted(maps.Keys(c.scrub.found)) {
		f := c.scrub.found[part]
		out = append(out, fmt.Sprintf("damaged since %s: %s: %s. Restore it from a backup; what does not need it goes on.", f.since.UTC().Format("2006-01-02 15:04"), part, f.what))
	}
	return out
}
