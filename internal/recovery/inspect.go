package recovery

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/bus"
	"choir.dev/choiros/internal/bus/embedded"
	"choir.dev/choiros/internal/datadir"
	"choir.dev/choiros/internal/defence"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/identity"
	"choir.dev/choiros/internal/ledger"
	"choir.dev/choiros/internal/state"
	"choir.dev/choiros/internal/vault"
)

// Report is what is damaged.
type Report struct {
	// Accounts is damage to what says who may sign in; without it there is no
	// console.
	Accounts []bus.Damage
	// Shared is damage to what every computer needs: the keys, the store's files.
	Shared []bus.Damage
	// Computers is damage of one computer each, by id; whole ones have an empty
	// list.
	Computers map[contract.CID][]bus.Damage
	// Names are the computers' names as far as they can be read.
	Names map[contract.CID]string
	// Created is when they were made, as far as that can be read.
	Created map[contract.CID]time.Time

	// Open says of which computers it is known that something has not ended, or not
	// known that all has.
	Open map[contract.CID]bool

	// Unfinished is why a recovery that was begun is not at its end, by whose it is;
	// of "" is that of what all share.
	Unfinished map[contract.CID]error

	// Failed is why the recovery before this look failed, nil when there was none.
	Failed error

	// seen is the newest sequence that a readable record of a log has.
	seen map[contract.CID]uint64
	// begun are computers whose stream was being made, and of which nothing is known.
	begun map[contract.CID]bool
}

// Whole says whether nothing is damaged.
func (r *Report) Whole() bool {
	if len(r.Unfinished) > 0 {
		return false
	}
	for _, d := range r.Computers {
		if len(d) > 0 {
			return false
		}
	}
	return len(r.Accounts) == 0 && len(r.Shared) == 0
}

// Usable says whether the store and the keys may be opened, once Arrange has set
// the damaged logs apart.
func (r *Report) Usable() bool { return len(r.Shared) == 0 && r.Unfinished[""] == nil }

// log says whether a computer's log is damaged: the server must not see it, for
// it would cut it off where it is.
func (r *Report) log(cid contract.CID) bool {
	return r.Unfinished[cid] != nil || slices.ContainsFunc(r.Computers[cid], func(d bus.Damage) bool { return strings.HasPrefix(d.File, "nats") })
}

// Log says why a computer's log must not be opened; nil: it may be.
func (r *Report) Log(cid contract.CID) error {
	if r.Usable() && !r.log(cid) {
		return nil
	}
	return r.Refusal(cid)
}

// LogDamaged says that a log's files are damaged or between two places, so that a
// server must not have them open.
func (r *Report) LogDamaged(cid contract.CID) bool { return r.log(cid) }

// Refusal says why a computer must not be woken, or is nil.
func (r *Report) Refusal(cid contract.CID) error {
	for _, of := range []contract.CID{"", cid} {
		if err := r.Unfinished[of]; err != nil {
			return err
		}
	}
	return Error(r.Of(cid))
}

// Set takes over what another look found of one computer.
func (r *Report) Set(cid contract.CID, of *Report) {
	r.Computers[cid], r.seen[cid] = of.Computers[cid], of.seen[cid]
	delete(r.Unfinished, cid)
	if err := of.Unfinished[cid]; err != nil {
		r.Unfinished[cid] = err
	}
	if name := of.Names[cid]; name != "" {
		r.Names[cid], r.Created[cid] = name, of.Created[cid]
	}
}

// Last is the newest sequence that a readable record of a computer's log has.
func (r *Report) Last(cid contract.CID) uint64 { return r.seen[cid] }

// Of is what keeps a computer from waking.
func (r *Report) Of(cid contract.CID) []bus.Damage {
	return append(slices.Clone(r.Shared), r.Computers[cid]...)
}

// Error says what is damaged, or is nil.
func Error(list []bus.Damage) error {
	if len(list) == 0 {
		return nil
	}
	texts := make([]string, 0, len(list))
	for _, d := range list {
		texts = append(texts, d.String())
	}
	return fault.New("", fault.Damaged, "Press Recover on the console, run choir recover with choir up stopped, or restore the data directory from a backup.", errors.New(strings.Join(texts, "; ")))
}

// known is what is known of one computer's log besides the log.
type known struct {
	head     ledger.Head
	hasHead  bool
	evidence state.Evidence
}

// Look finishes what recoveries had begun, and says what is damaged.
func Look(ctx context.Context, dir *datadir.Dir) (*Report, error) {
	if err := bus.PutBack(dir.Path("nats"), ""); err != nil {
		return nil, fault.Wrap("recovery.Look", err)
	}
	stuck, err := Finish(dir)
	if err != nil {
		return nil, fault.Wrap("recovery.Look", err)
	}
	r, err := Inspect(ctx, dir)
	if err != nil {
		return nil, err
	}
	maps.Copy(r.Unfinished, stuck) // which says more
	return r, nil
}

// LookAt is Look of what is one computer's alone. Nobody may have it open; the
// others may be awake.
func LookAt(ctx context.Context, dir *datadir.Dir, cid contract.CID) (*Report, error) {
	const op = "recovery.LookAt"
	if err := bus.PutBack(dir.Path("nats"), cid); err != nil {
		return nil, fault.Wrap(op, err)
	}
	stuck := finish(dir, cid)
	r, err := inspect(ctx, dir, cid)
	if err != nil {
		return nil, fault.Wrap(op, err)
	}
	if stuck != nil {
		r.Unfinished[cid] = stuck
	}
	return r, nil
}

// Inspect reads the data directory and says what is damaged. It writes nothing.
func Inspect(ctx context.Context, dir *datadir.Dir) (*Report, error) {
	const op = "recovery.Inspect"
	r, err := inspect(ctx, dir, "")
	if err != nil || r.Unfinished[""] != nil {
		return r, fault.Wrap(op, err)
	}
	if err := r.old(dir); err != nil {
		return nil, fault.Wrap(op, err)
	}
	return r, fault.Wrap(op, r.account(dir))
}

// inspect looks at one computer, or at all of them.
func inspect(ctx context.Context, dir *datadir.Dir, only contract.CID) (*Report, error) {
	r := newReport()
	cids := []contract.CID{only}
	if only == "" {
		var err error
		if cids, err = dir.Computers(); err != nil {
			return nil, err
		}
	}
	for _, cid := range cids {
		r.Computers[cid] = nil
	}
	if err := r.unfinished(dir); err != nil {
		return nil, err
	}
	if err := r.parts(ctx, dir, only == ""); err != nil {
		return nil, err
	}
	if only != "" {
		found := r
		r = newReport() // without what was found of the others
		r.Unfinished = found.Unfinished
		r.Computers[only] = found.Computers[only]
	}
	if r.Unfinished[""] != nil {
		// Where each thing is, only its journal knows.
		r.Shared = nil
		for cid := range r.Computers {
			r.Computers[cid] = nil
		}
		return r, nil
	}
	return r, r.logs(ctx, dir, only)
}

// unfinished says which recoveries are not at their end.
func (r *Report) unfinished(dir *datadir.Dir) error {
	open, err := Unfinished(dir)
	for _, of := range open {
		if _, err := readJournal(dir, of); err != nil {
			r.Unfinished[of] = err
			continue
		}
		r.Unfinished[of] = fault.New("", fault.Unavailable, "Try again, which brings it to its end.", errors.New("a recovery was interrupted"))
	}
	for of := range r.Unfinished {
		if of != "" {
			r.Computers[of] = nil
		}
	}
	return err
}

// logs holds each log, or one, against what is known of it besides.
func (r *Report) logs(ctx context.Context, dir *datadir.Dir, only contract.CID) error {
	facts := map[contract.CID]known{}
	marks := map[contract.CID][]uint64{}
	for cid := range r.Computers {
		if r.Unfinished[cid] != nil {
			r.Computers[cid] = nil
			continue // its parts are between two places
		}
		k, err := r.know(ctx, dir, cid)
		if err != nil {
			return err
		}
		facts[cid] = k
		marks[cid] = []uint64{k.head.Sequence, k.evidence.Last}
	}
	logs, files, err := ledger.SurveyStore(ctx, dir.Path("nats"), only, marks)
	if err != nil {
		return err
	}
	for cid := range logs {
		if _, ok := facts[cid]; !ok && r.Unfinished[cid] == nil {
			r.add(cid, filepath.Join("computers", string(cid)), "its log is there, its directory is gone")
		}
	}
	whole, all := map[contract.CID]bool{}, true
	for cid, k := range facts {
		whole[cid] = r.compare(cid, logs[cid], k)
		// A log of which the state is no whole copy may hold anything behind it.
		r.Open[cid] = k.evidence.Open || logs[cid] == nil || logs[cid].End.Sequence != k.evidence.Last
		all = all && whole[cid]
	}
	for cid, s := range logs {
		r.seen[cid] = s.Seen
	}
	unheard := func(cid contract.CID) bool {
		k := facts[cid]
		return logs[cid] == nil && !k.hasHead && k.evidence.Last == 0 && len(r.Computers[cid]) == 0
	}
	for _, d := range files {
		switch {
		case r.Unfinished[d.Of] != nil:
		case d.Of == "" && (!d.Newest || !all):
			r.Shared = append(r.Shared, d)
		case d.Of == "" || d.Newest && whole[d.Of]:
			// What a killed process leaves.
		case unheard(d.Of):
			r.begun[d.Of] = true // it was killed while it made the stream
		default:
			r.Computers[d.Of] = append(r.Computers[d.Of], d)
		}
	}
	return nil
}

func newReport() *Report {
	return &Report{Computers: map[contract.CID][]bus.Damage{}, Names: map[contract.CID]string{}, Created: map[contract.CID]time.Time{}, Open: map[contract.CID]bool{}, seen: map[contract.CID]uint64{}, begun: map[contract.CID]bool{}, Unfinished: map[contract.CID]error{}}
}

// old says that a store of before each log had its own stream can't be used as
// long as one of its logs is damaged.
func (r *Report) old(dir *datadir.Dir) error {
	shared, err := hasShared(dir)
	if err != nil || !shared {
		return err
	}
	for cid := range r.Computers {
		if r.log(cid) {
			r.shared("nats", "every log stands in one stream, as earlier versions stored them, and one of them is damaged")
			return nil
		}
	}
	return nil
}

func (r *Report) add(cid contract.CID, file, format string, args ...any) {
	r.Computers[cid] = append(r.Computers[cid], bus.Damage{File: file, What: fmt.Sprintf(format, args...)})
}

// parts says what was there and is not any more, and whether that of accounts is
// whole.
func (r *Report) parts(ctx context.Context, dir *datadir.Dir, accounts bool) error {
	parts, err := dir.Parts()
	if fault.Is(err, fault.Damaged) {
		r.Shared = append(r.Shared, bus.Damage{File: "parts", What: fault.Text(err)})
		return nil
	}
	if err != nil {
		return err
	}
	for _, cid := range datadir.Known(parts) {
		r.Computers[cid] = append([]bus.Damage{}, r.Computers[cid]...)
	}
	missing, err := dir.Missing(parts)
	if err != nil {
		return err
	}
	if defence.Off(defence.DataParts) {
		missing = nil
	}
	if accounts && slices.Contains(parts, "control.sqlite") && !slices.Contains(missing, "control.sqlite") {
		err := identity.Check(ctx, dir.Path("control.sqlite"))
		var damage *identity.DamageError
		switch {
		case errors.As(err, &damage):
			r.Accounts = append(r.Accounts, bus.Damage{File: "control.sqlite", What: fault.Text(damage.What)})
		case err != nil:
			return err
		}
	}
	for _, p := range missing {
		if slices.ContainsFunc(missing, func(above string) bool { return strings.HasPrefix(p, above+"/") }) {
			continue // the whole directory is gone
		}
		d := bus.Damage{File: p, What: "it is gone"}
		owner := strings.Split(p, "/")
		switch {
		case p == "control.sqlite":
			r.Accounts = append(r.Accounts, d)
		case len(owner) > 1 && (owner[0] == "computers" || owner[0] == "blobs"):
			r.Computers[contract.CID(owner[1])] = append(r.Computers[contract.CID(owner[1])], d)
		default:
			r.Shared = append(r.Shared, d)
		}
	}
	return r.branches(dir)
}

// branches says which histories' branch is there and names no commit, as a power
// cut can leave it. Whether one fits its log is looked at as its computer wakes.
func (r *Report) branches(dir *datadir.Dir) error {
	for cid := range r.Computers {
		at, err := branchOf(dir, cid)
		if err != nil {
			return err
		}
		if at.damage != "" && !defence.Off(defence.HistoryLog) {
			r.add(cid, rel(cid, "workspace", at.file), "%s", at.damage)
		}
	}
	return nil
}

// know reads a computer's head and what its state says. A state that can't be
// read is no damage: it comes back from the log.
func (r *Report) know(ctx context.Context, dir *datadir.Dir, cid contract.CID) (known, error) {
	var k known
	head, err := ledger.ReadHead(dir.Computer(cid, "log.head"))
	switch {
	case defence.Off(defence.LogHead):
	case err == nil:
		k.head, k.hasHead = head, true
	case fault.Is(err, fault.Damaged):
		r.add(cid, rel(cid, "log.head"), "it does not hold together")
	case !errors.Is(err, fs.ErrNotExist):
		return k, err
	}
	k.evidence, err = state.ReadEvidence(ctx, dir.Computer(cid, "state.sqlite"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) && !fault.Is(err, fault.Damaged) {
		return k, err
	}
	if err != nil || defence.Off(defence.LogEvidence) {
		k.evidence = state.Evidence{}
	}
	r.Names[cid], r.Created[cid] = k.evidence.Name, k.evidence.Created
	return k, nil
}

func rel(cid contract.CID, names ...string) string {
	return filepath.Join(append([]string{"computers", string(cid)}, names...)...)
}

// compare holds a log against its head and its state.
func (r *Report) compare(cid contract.CID, s *ledger.Survey, k known) bool {
	had := max(k.head.Sequence, k.evidence.Last)
	if s == nil {
		if had > 0 {
			r.add(cid, "nats", "the log is gone; it had %d events", had)
		}
		return had == 0
	}
	before := len(r.Computers[cid])
	switch {
	case s.End.Sequence < had && s.Broken != "":
		r.add(cid, "nats", "the log is broken behind event %d of %d: %s", s.End.Sequence, had, s.Broken)
	case s.End.Sequence < had:
		r.add(cid, "nats", "the log ends at event %d; it had %d", s.End.Sequence, had)
	case s.Broken != "":
		r.add(cid, "nats", "the log is broken behind event %d: %s", s.End.Sequence, s.Broken)
	case k.hasHead && contract.LinkOf(s.At[k.head.Sequence]) != k.head.Link:
		r.add(cid, "nats", "event %d of the log is another one than was acknowledged", k.head.Sequence)
	case !k.hasHead && k.evidence.Last > 0:
		// Without a head the state is the only witness.
		e, err := contract.UnmarshalEvent(s.At[k.evidence.Last])
		if err != nil || contract.Digest(e) != k.evidence.Digest {
			r.add(cid, "nats", "event %d of the log is another one than the state was made from", k.evidence.Last)
		}
	}
	return len(r.Computers[cid]) == before
}

// account holds the store's account against the key, and looks whether the others
// are keys.
func (r *Report) account(dir *datadir.Dir) error {
	damaged, err := embedded.DamagedKeys(dir.Path("keys"))
	if err != nil {
		return err
	}
	for _, file := range damaged {
		r.shared(filepath.Join("keys", file), "it is no key")
	}
	if file := vault.Damaged(dir.Path("keys")); file != "" {
		r.shared(filepath.Join("keys", file), "the secrets can't be read with it")
	}
	accounts, err := bus.StoreAccounts(dir.Path("nats"))
	if err != nil {
		return err
	}
	if len(accounts) == 0 {
		for cid := range r.Computers {
			if r.log(cid) {
				r.shared("nats", "no log is in it")
				break
			}
		}
		return nil
	}
	key, err := embedded.Account(dir.Path("keys"))
	switch {
	case defence.Off(defence.StoreAccount):
	case errors.Is(err, fs.ErrNotExist):
		r.shared("keys/account.nk", "it is gone; without it the stored log can't be found")
	case err != nil:
		r.shared("keys/account.nk", "it is no key")
	case !slices.Contains(accounts, key):
		r.shared("keys/account.nk", "it is another key than the stored log's")
	}
	return nil
}

func (r *Report) shared(file, what string) {
	for _, d := range r.Shared {
		if d.File == file || strings.HasPrefix(file, d.File+"/") {
			return
		}
	}
	r.Shared = append(r.Shared, bus.Damage{File: file, What: what})
}
