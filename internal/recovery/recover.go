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
	"time"

	"github.com/nats-io/nats.go"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/bus"
	"choir.dev/choiros/internal/datadir"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/ledger"
	"choir.dev/choiros/internal/state"
)

// Options of Recover.
type Options struct {
	Dir    *datadir.Dir // nobody else may have anything of it open
	Driver string       // of a computer of whose log nothing is left
	Logger *slog.Logger
	// Histories are computers whose history in git does not fit their log.
	Histories []contract.CID
}

// Result is what Recover did.
type Result struct {
	Aside     string                                 `json:"aside,omitempty"` // where what was there is kept
	Computers map[contract.CID]contract.LogRecovered `json:"computers"`
	Shared    []string                               `json:"shared,omitempty"` // what was made anew for all
	Found     []bus.Damage                           `json:"found"`
}

// job is one recovery under way.
type job struct {
	Options
	report *Report
	aside  string
	result *Result
	lost   map[contract.CID]bool // computers whose history begins anew
}

// Recover brings back what is damaged from what else knows it, and gives up what
// nothing knows. Nothing is changed in place: what was there is moved or copied
// aside first. It may be done again after it failed.
func Recover(ctx context.Context, o Options) (*Result, error) {
	const op = "recovery.Recover"
	if err := finish(o.Dir); err != nil {
		return nil, fault.Wrap(op, err)
	}
	report, err := Inspect(ctx, o.Dir)
	if err != nil {
		return nil, fault.Wrap(op, err)
	}
	j := &job{Options: o, report: report, result: &Result{Computers: map[contract.CID]contract.LogRecovered{}, Found: slices.Concat(report.Accounts, report.Shared)}}
	for _, cid := range j.cids() {
		j.result.Found = append(j.result.Found, report.Computers[cid]...)
	}
	if report.Whole() && len(o.Histories) == 0 && !o.Dir.Unversioned() {
		return j.result, nil
	}
	j.aside = filepath.Join("aside", time.Now().UTC().Format("20060102T150405.000000"))
	j.result.Aside = j.aside
	return j.result, fault.Wrap(op, j.do(ctx))
}

func (j *job) cids() []contract.CID {
	var out []contract.CID
	for cid := range j.report.Computers {
		out = append(out, cid)
	}
	slices.Sort(out)
	return out
}

func (j *job) do(ctx context.Context) error {
	if err := os.MkdirAll(j.Dir.Path(j.aside), 0o700); err != nil {
		return err
	}
	if err := j.accounts(); err != nil {
		return err
	}
	if err := j.keys(); err != nil {
		return err
	}
	if err := j.Dir.Complete(); err != nil {
		return err
	}
	if err := j.loseHistories(ctx); err != nil {
		return err
	}
	refill := j.report.logs() || slices.ContainsFunc(j.report.Shared, func(d bus.Damage) bool {
		return strings.HasPrefix(d.File, "nats") || d.File == "keys" || d.File == "keys/account.nk"
	})
	if err := j.logs(ctx, refill); err != nil {
		return err
	}
	var gone []string
	for _, d := range j.result.Found {
		gone = append(gone, d.File)
	}
	return j.Dir.Forget(gone)
}

// accounts moves a file of accounts away that can't be read: who may sign in is
// made anew, and every session ends.
func (j *job) accounts() error {
	if len(j.report.Accounts) == 0 {
		return nil
	}
	j.result.Shared = append(j.result.Shared, "control.sqlite: made anew; every session has ended, sign in with the link that choir up prints; what models consumed is counted anew from the logs, without tests of models and computers that are gone")
	for _, suffix := range []string{"", "-wal", "-shm"} {
		if err := j.moveAside("control.sqlite" + suffix); err != nil {
			return err
		}
	}
	return nil
}

// keys moves keys away that are none, and secrets whose key is gone.
func (j *job) keys() error {
	for _, d := range j.report.Shared {
		if d.File == "keys" || d.File == "keys/master.key" {
			j.result.Shared = append(j.result.Shared, "keys: the secrets can't be read any more; set them again with choir secrets set")
			if err := j.moveAside("keys/secrets.sealed"); err != nil {
				return err
			}
		}
		if strings.HasPrefix(d.File, "keys/") && strings.HasSuffix(d.File, ".nk") {
			j.result.Shared = append(j.result.Shared, d.File+": made anew")
			if err := j.moveAside(d.File); err != nil {
				return err
			}
		}
	}
	return nil
}

func (j *job) moveAside(name string) error {
	to := j.Dir.Path(j.aside, name)
	if err := os.MkdirAll(filepath.Dir(to), 0o700); err != nil {
		return err
	}
	err := os.Rename(j.Dir.Path(name), to)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return errors.Join(err, datadir.SyncDir(filepath.Dir(to)))
}

// copyAside keeps a copy of a file that will be written.
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

// logs refills the store if need be, and tells every computer's log that was
// recovered.
func (j *job) logs(ctx context.Context, refill bool) error {
	nats := j.Dir.Path("nats")
	kept := map[contract.CID]ledger.Kept{}
	if refill {
		nats = j.Dir.Path(freshStore)
		if err := os.RemoveAll(nats); err != nil {
			return err
		}
	}
	b, err := bus.Open(ctx, bus.Options{Dir: nats, KeysDir: j.Dir.Path("keys"), Logger: j.Logger})
	if err != nil {
		return err
	}
	heads := map[contract.CID]ledger.Head{}
	err = func() error {
		if refill {
			if err := j.refill(ctx, b, kept); err != nil {
				return err
			}
		}
		for _, cid := range j.cids() {
			if !refill && len(j.report.Of(cid)) == 0 && !slices.Contains(j.Histories, cid) {
				continue
			}
			head, err := j.tell(ctx, b, cid, kept[cid], refill)
			if err != nil {
				return err
			}
			heads[cid] = head
		}
		return nil
	}()
	if err = errors.Join(err, b.Close()); err != nil {
		return err
	}
	for cid := range heads {
		for _, name := range []string{"log.head", "state.sqlite", "state.sqlite-wal"} {
			if err := j.copyAside(rel(cid, name)); err != nil {
				return err
			}
		}
	}
	if refill {
		if err := j.swap(); err != nil {
			return err
		}
	}
	for cid, head := range heads {
		if err := os.MkdirAll(j.Dir.Computer(cid), 0o700); err != nil {
			return err
		}
		if err := ledger.WriteHead(j.Dir.Computer(cid, "log.head"), head); err != nil {
			return err
		}
	}
	return j.histories()
}

const (
	freshStore = "nats.new"
	freshWhole = "nats.new/whole" // it may take the place of nats
)

// swap puts the refilled store in the old one's place.
func (j *job) swap() error {
	if err := datadir.WriteFile(j.Dir.Path(freshWhole), []byte(j.aside+"\n"), 0o600); err != nil {
		return err
	}
	return finish(j.Dir)
}

// finish completes a swap that a crash interrupted.
func finish(dir *datadir.Dir) error {
	aside, err := os.ReadFile(dir.Path(freshWhole))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	old := strings.TrimSpace(string(aside))
	if !filepath.IsLocal(old) {
		return fault.New("recovery.finish", fault.Damaged, "Remove "+freshStore+" and run choir recover again.", errors.New(freshWhole+" does not name a directory"))
	}
	if err := os.MkdirAll(dir.Path(old), 0o700); err != nil {
		return err
	}
	if err := os.Rename(dir.Path("nats"), dir.Path(old, "nats")); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := os.Rename(dir.Path(freshStore), dir.Path("nats")); err != nil {
		return err
	}
	if err := errors.Join(datadir.SyncDir(dir.Path(old)), datadir.SyncDir(dir.Path())); err != nil {
		return err
	}
	return os.Remove(dir.Path("nats", "whole"))
}

// refill stores every computer's events that can be had.
func (j *job) refill(ctx context.Context, b *bus.Bus, kept map[contract.CID]ledger.Kept) error {
	for _, cid := range j.cids() {
		r := b.Refill()
		k, err := ledger.Merge(ctx, j.Dir.Path("nats"), cid, rowsOf(ctx, j.Dir.Computer(cid, "state.sqlite")), func(subject string, header nats.Header, data []byte) error {
			return r.Add(ctx, subject, header, data)
		})
		if err := errors.Join(err, r.Flush(ctx)); err != nil {
			return err
		}
		kept[cid] = k
	}
	return nil
}

// rowsOf reads a state's events; a file that is not there has none.
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

// tell appends to a computer's log, under a new epoch, what became of it.
func (j *job) tell(ctx context.Context, b *bus.Bus, cid contract.CID, k ledger.Kept, refilled bool) (ledger.Head, error) {
	l, err := ledger.Open(ctx, b.JetStream(), ledger.Options{CID: cid, Health: b.Health})
	if err != nil {
		return ledger.Head{}, err
	}
	note := contract.LogRecovered{Kept: int(l.Last()), Aside: j.aside}
	if refilled {
		note.FromState, note.Unproven = int(k.FromRows), int(k.Unproven)
		if had := j.had(ctx, cid); had > k.End.Sequence {
			note.Lost = int(had - k.End.Sequence)
		}
	}
	for _, d := range j.report.Of(cid) {
		if len(note.Gone) < 200 {
			note.Gone = append(note.Gone, clip(d.String(), 300))
		}
	}
	note.History = j.lost[cid]
	var drafts []contract.Draft
	if l.Last() == 0 {
		name := j.report.Names[cid]
		if name == "" {
			name = "Choir"
		}
		drafts = append(drafts, contract.Draft{Role: contract.RoleSystem, Type: "computer.created", Data: contract.ComputerCreated{Name: name, Driver: j.Driver}})
	}
	drafts = append(drafts, contract.Draft{Role: contract.RoleSystem, Type: "log.recovered", Data: note})
	events, err := l.Append(ctx, drafts...)
	if err = errors.Join(err, l.Close()); err != nil {
		return ledger.Head{}, err
	}
	j.result.Computers[cid] = note
	last := events[len(events)-1]
	data, err := contract.Stored(last)
	return ledger.Head{Sequence: last.Sequence, Epoch: last.Epoch, Link: contract.LinkOf(data)}, err
}

// had is how many events a log had, by everything that knows.
func (j *job) had(ctx context.Context, cid contract.CID) uint64 {
	k, err := (&Report{Computers: map[contract.CID][]bus.Damage{}, Names: map[contract.CID]string{}}).know(ctx, j.Dir, cid)
	if err != nil {
		return 0
	}
	return max(k.head.Sequence, k.evidence.Last)
}

func clip(s string, most int) string {
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most-3], "") + "…"
}

// loseHistories decides which histories can't be used. One whose commits are
// there and whose branch is not, or names an older one, gets its branch back.
func (j *job) loseHistories(ctx context.Context) error {
	j.lost = map[contract.CID]bool{}
	for _, cid := range j.cids() {
		suspect := slices.Contains(j.Histories, cid) || slices.ContainsFunc(j.report.Computers[cid], func(d bus.Damage) bool {
			return strings.HasPrefix(d.File, rel(cid, "workspace"))
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

// branch is the one branch of a computer's history.
const branch = ".git/refs/heads/main"

// reattach points a history's branch at the newest checkpoint that the state
// knows, unless it stands there already or there is nothing to point at.
func (j *job) reattach(ctx context.Context, cid contract.CID) (bool, error) {
	e, err := state.ReadEvidence(ctx, j.Dir.Computer(cid, "state.sqlite"))
	if err != nil || len(e.Checkpoint) != 40 {
		return false, nil // nothing says which
	}
	// Beneath the workspace: boxes write there.
	root, err := os.OpenRoot(j.Dir.Computer(cid, "workspace"))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer root.Close() // what is written is synced
	if now, err := root.ReadFile(branch); err == nil && strings.TrimSpace(string(now)) == e.Checkpoint {
		return false, nil
	}
	if _, err := root.Lstat(".git/objects/" + e.Checkpoint[:2] + "/" + e.Checkpoint[2:]); err != nil {
		if packs, err := fs.Glob(root.FS(), ".git/objects/pack/*.pack"); err != nil || len(packs) == 0 {
			return false, nil
		}
	}
	if err := root.MkdirAll(".git/refs/heads", 0o755); err != nil {
		return false, err
	}
	f, err := root.OpenFile(branch, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o644)
	if err != nil {
		return false, err
	}
	_, err = f.WriteString(e.Checkpoint + "\n")
	return err == nil, errors.Join(err, f.Sync(), f.Close())
}

// histories moves away what is left of a history that can't be used, so that a
// new one begins with the files as they are.
func (j *job) histories() error {
	for _, cid := range j.cids() {
		if !j.lost[cid] {
			continue
		}
		if err := j.moveAside(rel(cid, "workspace", ".git")); err != nil {
			return fmt.Errorf("move the history aside: %w", err)
		}
	}
	return nil
}
