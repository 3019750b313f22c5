package recovery

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/nats-io/nats.go"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/bus"
	"choir.dev/choiros/internal/datadir"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/identity"
	"choir.dev/choiros/internal/ledger"
	"choir.dev/choiros/internal/state"
)

// Options configure Recover.
type Options struct {
	Dir    *datadir.Dir // nobody else may have any of its files open, except with Bus
	Driver string       // the driver of a computer whose whole log is lost
	Logger *slog.Logger
	// Histories are the computers whose history in git does not match their log.
	Histories []contract.CID
	// Only are the computers to recover; nil: all. If something that all share is damaged,
	// all are recovered.
	Only []contract.CID
	// Bus is the bus on the existing store, when the control plane is running. Then Only
	// must be one computer, which nobody has open, and nothing else is touched. If its log
	// is damaged, it must not be open in the server either (Report.LogDamaged,
	// bus.Serves).
	Bus *bus.Bus
}

// Result describes what Recover did.
type Result struct {
	Aside     string                                 `json:"aside,omitempty"` // where replaced files are kept
	Computers map[contract.CID]contract.LogRecovered `json:"computers"`
	Shared    []string                               `json:"shared,omitempty"` // what was made anew of the parts that all share
	Found     []bus.Damage                           `json:"found"`
}

// job is one recovery under way.
type job struct {
	Options
	report *Report
	aside  string
	result *Result
	lost   map[contract.CID]bool // computers whose history begins anew
	// continues holds commits at which histories stand that are based on lost events.
	continues map[contract.CID]string
	sealed    bool // whether the secrets can't be read any more
}

// Recover restores damaged parts from other parts that have their contents, and gives up
// what no part has. Nothing is changed in place: existing files are moved or copied aside
// first. It may be repeated after a failure.
func Recover(ctx context.Context, o Options) (*Result, error) {
	const op = "recovery.Recover"
	if o.Bus != nil && len(o.Only) != 1 {
		return nil, fault.New(op, fault.Internal, "", errors.New("one at a time while the others are awake"))
	}
	if o.Bus != nil {
		if err := o.Bus.Files(); err != nil {
			return nil, fault.Wrap(op, err)
		}
	}
	if o.Bus == nil {
		if err := Newer(ctx, o.Dir); err != nil {
			return nil, fault.Wrap(op, err)
		}
		if err := bus.PutBack(o.Dir.Path("nats"), ""); err != nil {
			return nil, fault.Wrap(op, err)
		}
	}
	begun, err := o.goOn()
	if err != nil {
		return nil, fault.Wrap(op, err)
	}
	var report *Report
	if o.Bus != nil {
		err = o.still(func() (err error) { report, err = FinishAndInspectOne(ctx, o.Dir, o.Only[0]); return err })
	} else {
		report, err = Inspect(ctx, o.Dir)
	}
	if err != nil {
		return nil, fault.Wrap(op, err)
	}
	j := &job{Options: o, report: report, result: &Result{Computers: map[contract.CID]contract.LogRecovered{}, Found: slices.Concat(begun, report.Accounts, report.Shared)}}
	for _, cid := range j.cids() {
		j.result.Found = append(j.result.Found, report.Computers[cid]...)
	}
	if len(j.result.Found) == len(begun) && len(o.Histories) == 0 && !o.Dir.Unversioned() {
		return j.result, nil
	}
	j.aside = newAside()
	j.result.Aside = j.aside
	return j.result, fault.Wrap(op, j.do(ctx))
}

// still calls f, which moves files of logs, while no server starts on them.
func (o Options) still(f func() error) error {
	if o.Bus == nil {
		return f()
	}
	return o.Bus.WithFiles(f)
}

// goOn finishes recoveries that were begun. A journal that can't be read is given up, and
// what it was about is inspected again.
func (o Options) goOn() (given []bus.Damage, err error) {
	open, err := Unfinished(o.Dir)
	if err != nil {
		return nil, err
	}
	for _, of := range open {
		if of == "" && o.Bus != nil || of != "" && len(o.Only) > 0 && !slices.Contains(o.Only, of) {
			continue // not asked for
		}
		_, err := readJournal(o.Dir, of)
		if fault.Is(err, fault.Damaged) {
			given = append(given, bus.Damage{File: journalFile(of), What: fault.Text(err)})
			if err := giveUp(o.Dir, of); err != nil {
				return nil, err
			}
			continue
		}
		if err := o.still(func() error { return finish(o.Dir, of) }); err != nil {
			return nil, err
		}
	}
	return given, nil
}

func (j *job) cids() []contract.CID {
	var out []contract.CID
	for cid := range j.report.Computers {
		if len(j.Only) == 0 || !j.report.Usable() || slices.Contains(j.Only, cid) {
			out = append(out, cid)
		}
	}
	slices.Sort(out)
	return out
}

func (j *job) do(ctx context.Context) error {
	if err := os.MkdirAll(j.Dir.Path(j.aside), 0o700); err != nil {
		return err
	}
	if j.Bus == nil {
		if err := errors.Join(j.accounts(ctx), j.keys()); err != nil {
			return err
		}
		if err := errors.Join(j.Dir.Complete(), j.Dir.Raise()); err != nil {
			return err
		}
	}
	if err := j.loseHistories(ctx); err != nil {
		return err
	}
	return j.logs(ctx)
}

// accounts moves a file of accounts that can't be read aside. A new one is made at the next
// start, and every session ends. One that is whole and not the newest goes on as it is.
func (j *job) accounts(ctx context.Context) error {
	if len(j.report.Accounts) == 0 {
		return nil
	}
	if j.report.olderAccounts() {
		for _, name := range []string{"control.sqlite", "control.sqlite-wal", identity.HeadFile} {
			if err := j.copyAside(name); err != nil {
				return err
			}
		}
		j.result.Shared = append(j.result.Shared, "control.sqlite: it goes on as it is; every session has ended, sign in with the link that choir up prints; look through accounts, members, invitations and tokens, for who was let in or taken out since is not in it; what models consumed since is counted anew from the logs")
		return identity.Accept(ctx, j.Dir.Path("control.sqlite"))
	}
	j.result.Shared = append(j.result.Shared, "control.sqlite: made anew; every session has ended, sign in with the link that choir up prints; what models consumed is counted anew from the logs, without tests of models and computers that are gone")
	for _, name := range []string{"control.sqlite", "control.sqlite-wal", "control.sqlite-shm", identity.HeadFile} {
		if err := moveAside(j.Dir, j.aside, name); err != nil {
			return err
		}
	}
	return nil
}

// keys moves key files that hold no valid key aside, and secrets whose key is gone.
func (j *job) keys() error {
	for _, d := range j.report.Shared {
		if d.File == "keys" || d.File == "keys/master.key" || d.File == "keys/secrets.sealed" {
			j.result.Shared = append(j.result.Shared, "keys: the secrets can't be read any more; set them again with choir secrets set")
			if err := moveAside(j.Dir, j.aside, "keys/secrets.sealed"); err != nil {
				return err
			}
			j.sealed = true
			if d.File == "keys/master.key" {
				if err := moveAside(j.Dir, j.aside, d.File); err != nil {
					return err
				}
			}
		}
		if strings.HasPrefix(d.File, "keys/") && strings.HasSuffix(d.File, ".nk") {
			j.result.Shared = append(j.result.Shared, d.File+": made anew")
			if err := moveAside(j.Dir, j.aside, d.File); err != nil {
				return err
			}
		}
	}
	return nil
}

// copyAside copies a file aside that will be changed.
func (j *job) copyAside(name string) error {
	b, err := os.ReadFile(j.Dir.Path(name))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	to := j.Dir.Path(j.aside, name)
	if err := os.MkdirAll(filepath.Dir(to), 0o700); err != nil {
		return err
	}
	return datadir.WriteFile(to, b, 0o600)
}

// logs makes the damaged logs anew, or all of them if the store or its account key is
// damaged. It appends to the log of every computer that had damage what was damaged.
func (j *job) logs(ctx context.Context) error {
	if slices.ContainsFunc(j.report.Shared, func(d bus.Damage) bool {
		return strings.HasPrefix(d.File, "nats") || d.File == "keys" || d.File == "keys/account.nk"
	}) {
		end := j.journal("")
		end.Store = true
		if err := j.anew(ctx, j.cids(), &end); err != nil {
			return err
		}
		return j.end(end)
	}
	live := j.Bus
	if live == nil {
		if err := Arrange(j.Dir, j.report); err != nil {
			return err
		}
		b, err := bus.Open(ctx, bus.Options{Dir: j.Dir.Path("nats"), KeysDir: j.Dir.Path("keys"), Logger: j.Logger})
		if err != nil {
			return err
		}
		live = b
		defer func() {
			if err := b.Close(); err != nil {
				j.Logger.Warn("the store did not close in order", "error", err)
			}
		}()
	}
	for _, cid := range j.cids() {
		if err := j.one(ctx, live, cid); err != nil {
			return err
		}
	}
	if j.Bus != nil {
		return nil
	}
	return j.end(j.journal("")) // the journal of what all share
}

// journal makes a journal whose only step is to stop missing the parts that are gone.
func (j *job) journal(of contract.CID) journal {
	end := journal{computer: of, Aside: j.aside, Heads: map[contract.CID]ledger.Head{}, Logged: map[contract.CID]string{}}
	found := j.report.Computers[of]
	if of == "" {
		found = j.result.Found
	}
	for _, d := range found {
		end.Gone = append(end.Gone, d.File)
	}
	if of == "" && j.sealed {
		end.Gone = append(end.Gone, "keys/secrets.sealed")
	}
	return end
}

// one recovers one computer. If its log is whole, a note of what else was damaged is
// appended in the existing store, which the server can open because it sees whole logs
// only.
func (j *job) one(ctx context.Context, live *bus.Bus, cid contract.CID) error {
	end := j.journal(cid)
	var err error
	switch {
	case j.report.log(cid):
		err = j.anew(ctx, []contract.CID{cid}, &end)
	case len(j.report.Of(cid)) > 0 || slices.Contains(j.Histories, cid):
		if err = os.RemoveAll(j.Dir.Path(freshStore(cid))); err == nil {
			end.Heads[cid], err = j.tell(ctx, live, cid, nil)
		}
	default:
		return nil
	}
	if err != nil {
		return err
	}
	return j.end(end)
}

// end copies files that the journal will change aside, and carries the journal out.
func (j *job) end(end journal) error {
	for cid := range end.Heads {
		if j.lost[cid] && !slices.Contains(end.Histories, cid) {
			end.Histories = append(end.Histories, cid)
		}
		for _, name := range []string{"log.head", "state.sqlite", "state.sqlite-wal"} {
			if err := j.copyAside(rel(cid, name)); err != nil {
				return err
			}
		}
	}
	for _, cid := range end.Histories {
		end.Gone = append(end.Gone, rel(cid, "workspace", ".git"))
	}
	return j.still(func() error { return swap(j.Dir, end) })
}

// anew makes logs anew in a store of their own.
func (j *job) anew(ctx context.Context, cids []contract.CID, end *journal) error {
	b, err := freshBus(ctx, j.Dir, end.computer, j.Logger)
	if err != nil {
		return err
	}
	err = func() error {
		for _, cid := range cids {
			k, checkpoint, err := j.refill(ctx, b, cid)
			if err != nil {
				return err
			}
			if k.End.Sequence < j.had(ctx, cid) {
				if err := j.forgetLater(cid, checkpoint, end); err != nil {
					return err
				}
			}
			if end.Heads[cid], err = j.tell(ctx, b, cid, &k); err != nil {
				return err
			}
		}
		return nil
	}()
	return errors.Join(err, b.Close())
}

// forgetLater keeps other files of a computer from being ahead of its shorter log. The
// state is made again from the log. The history stays as it is, and its checkpoints that
// the log no longer has are appended to the log again.
func (j *job) forgetLater(cid contract.CID, checkpoint string, end *journal) error {
	end.States = append(end.States, cid)
	if j.lost[cid] {
		return nil
	}
	now, err := branchOf(j.Dir, cid)
	if err != nil {
		return err
	}
	has, err := holds(j.Dir, cid, now.commit)
	if err != nil {
		return err
	}
	if !has {
		j.lost[cid] = true
		end.Histories = append(end.Histories, cid)
		return nil
	}
	if has, err := holds(j.Dir, cid, checkpoint); err != nil || !has {
		checkpoint = ""
	}
	end.Logged[cid] = checkpoint
	if now.commit != checkpoint {
		j.continues[cid] = now.commit
	}
	for _, name := range []string{told, packedRefs} {
		if err := keepRef(j.Dir, j.aside, cid, name); err != nil {
			return err
		}
	}
	return nil
}

// refill stores the events of a computer that can be recovered, and returns the newest
// checkpoint among them.
func (j *job) refill(ctx context.Context, b *bus.Bus, cid contract.CID) (ledger.Recovered, string, error) {
	r, err := b.Refill(ctx, cid)
	if err != nil {
		return ledger.Recovered{}, "", err
	}
	checkpoint := ""
	k, err := ledger.Merge(ctx, j.Dir.Path("nats"), cid, rowsOf(ctx, j.Dir.Computer(cid, "state.sqlite")), func(subject string, header nats.Header, data []byte) error {
		if strings.HasSuffix(subject, ".checkpoint.created") {
			if e, err := contract.UnmarshalEvent(data); err == nil {
				if p, err := contract.DecodeData(e.Type, e.Data); err == nil {
					checkpoint = p.(*contract.CheckpointCreated).Commit
				}
			}
		}
		return r.Add(ctx, subject, header, data)
	})
	return k, checkpoint, errors.Join(err, r.Flush(ctx))
}

// rowsOf yields a state's events; none if the file does not exist.
func rowsOf(ctx context.Context, path string) iter.Seq2[ledger.Row, error] {
	return func(yield func(ledger.Row, error) bool) {
		stopped := errors.New("stopped")
		err := state.ReadRows(ctx, path, func(e contract.Event, digest []byte) error {
			sum := contract.Digest(e)
			if !yield(ledger.Row{Event: e, Sound: string(digest) == string(sum[:])}, nil) {
				return stopped
			}
			return nil
		})
		if err != nil && !errors.Is(err, stopped) && !errors.Is(err, fs.ErrNotExist) {
			yield(ledger.Row{}, err)
		}
	}
}

// tell appends to a computer's log, in a new epoch, what was recovered and lost. k
// describes how the log was made anew; nil if it was not.
func (j *job) tell(ctx context.Context, b *bus.Bus, cid contract.CID, k *ledger.Recovered) (ledger.Head, error) {
	l, err := ledger.Open(ctx, b.JetStream(), ledger.Options{CID: cid, Ensure: b.EnsureStream, Health: b.Health, FailedReads: b.FailedReads})
	if err != nil {
		return ledger.Head{}, err
	}
	note := contract.LogRecovered{Kept: int(l.Last()), Aside: j.aside}
	if k != nil {
		note.FromState, note.Unproven = int(k.FromRows), int(k.Unproven)
		if had := j.had(ctx, cid); had > k.End.Sequence {
			note.Lost = int(had - k.End.Sequence)
			note.Gone = append(note.Gone, fmt.Sprintf("events %d to %d: nothing that can be read continues the log behind event %d; what there is of them is kept aside", k.End.Sequence+1, had, k.End.Sequence))
		}
	}
	for _, d := range j.report.Of(cid) {
		if len(note.Gone) < 200 {
			note.Gone = append(note.Gone, contract.Shorten(d.String(), 300))
		}
	}
	note.History, note.Continues = j.lost[cid], j.continues[cid]
	var drafts []contract.Draft
	if l.Last() == 0 {
		name := j.report.Names[cid]
		if name == "" {
			name = "Choir"
		}
		drafts = append(drafts, contract.Draft{Actor: contract.System(), Type: "computer.created", Data: contract.ComputerCreated{Name: name, Driver: j.Driver}})
	}
	drafts = append(drafts, contract.Draft{Actor: contract.System(), Type: "log.recovered", Data: note})
	events, err := l.Append(ctx, drafts...)
	if err = errors.Join(err, l.Close()); err != nil {
		return ledger.Head{}, err
	}
	j.result.Computers[cid] = note
	last := events[len(events)-1]
	data, err := contract.Stored(last)
	return ledger.Head{Sequence: last.Sequence, Epoch: last.Epoch, Link: contract.LinkOf(data)}, err
}

// had returns how many events a log had, according to every file that says so.
func (j *job) had(ctx context.Context, cid contract.CID) uint64 {
	k, err := newReport().know(ctx, j.Dir, cid)
	if err != nil {
		return j.report.seen[cid]
	}
	return max(k.head.Sequence, k.evidence.Last, j.report.seen[cid])
}

// loseHistories decides which histories can't be used. If a history's commits exist, but
// its branch is missing or names an older commit, the branch is set again. A history that
// lacks only chunks of large files is kept: when its computer wakes, the chunks of files
// that are live are made again, and the scrub reports the others.
func (j *job) loseHistories(ctx context.Context) error {
	j.lost, j.continues = map[contract.CID]bool{}, map[contract.CID]string{}
	for _, cid := range j.cids() {
		suspect := slices.Contains(j.Histories, cid) || slices.ContainsFunc(j.report.Computers[cid], func(d bus.Damage) bool {
			return strings.HasPrefix(d.File, rel(cid, "workspace")) && d.File != datadir.Chunks(cid)
		})
		if !suspect {
			continue
		}
		back, err := j.reattach(ctx, cid)
		if err != nil {
			return err
		}
		j.lost[cid] = !back
	}
	return nil
}

// reattach sets a history's branch to the newest checkpoint that the state knows. It
// returns false if the branch names that commit already, or if there is no such commit.
func (j *job) reattach(ctx context.Context, cid contract.CID) (bool, error) {
	e, err := state.ReadEvidence(ctx, j.Dir.Computer(cid, "state.sqlite"))
	if err != nil {
		return false, nil // no other file names the checkpoint
	}
	has, err := holds(j.Dir, cid, e.Checkpoint)
	if err != nil || !has {
		return false, err
	}
	now, err := branchOf(j.Dir, cid)
	if err == nil && now.commit == e.Checkpoint {
		return false, nil
	}
	return true, setRef(j.Dir, j.aside, cid, branch, e.Checkpoint)
}
