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

// Report describes what is damaged.
type Report struct {
	// Accounts is damage to the file that says who may sign in; without it there is no
	// console.
	Accounts []bus.Damage
	// Shared is damage to what every computer needs: the keys, the store's files.
	Shared []bus.Damage
	// Computers is the damage of each computer, by id; the list of an undamaged one is
	// empty.
	Computers map[contract.CID][]bus.Damage
	// Names are the computers' names as far as they can be read.
	Names map[contract.CID]string
	// Created is when they were made, as far as that can be read.
	Created map[contract.CID]time.Time

	// Open holds the computers of which it is known that something has not ended, such as
	// a run, or not known that everything has.
	Open map[contract.CID]bool

	// Unfinished says, by computer, why a recovery that was begun is not finished; the key
	// "" is for the recovery of what all computers share.
	Unfinished map[contract.CID]error

	// Failed is why the recovery before this inspection failed, nil when there was none or
	// it succeeded.
	Failed error

	// seen is, by computer, the newest sequence in any readable record of the log.
	seen map[contract.CID]uint64
	// begun holds computers whose stream was being made when the process ended, and of
	// which nothing else is known.
	begun map[contract.CID]bool
}

// Whole reports whether nothing is damaged.
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

// Usable reports whether the store and the keys may be opened, once Arrange has moved the
// damaged logs.
func (r *Report) Usable() bool { return len(r.Shared) == 0 && r.Unfinished[""] == nil }

// log reports whether a computer's log is damaged. The server must not open it then,
// because it would cut the log off at the damage.
func (r *Report) log(cid contract.CID) bool {
	return r.Unfinished[cid] != nil || slices.ContainsFunc(r.Computers[cid], func(d bus.Damage) bool { return strings.HasPrefix(d.File, "nats") })
}

// AccountsRefusal returns why the file of accounts must not be opened, or nil.
func (r *Report) AccountsRefusal() error {
	err := Error(r.Accounts)
	switch {
	case err == nil:
		return nil
	case r.olderAccounts():
		return fault.New("", fault.Damaged, identity.HintOlder, err)
	}
	return fault.New("", fault.Damaged, identity.HintDamaged, err)
}

// olderAccounts reports whether the file of accounts is whole, but not known to be the newest.
func (r *Report) olderAccounts() bool {
	return len(r.Accounts) > 0 && !slices.ContainsFunc(r.Accounts, func(d bus.Damage) bool { return d.File != identity.HeadFile })
}

// Log returns why a computer's log must not be opened; nil if it may be.
func (r *Report) Log(cid contract.CID) error {
	if r.Usable() && !r.log(cid) {
		return nil
	}
	return r.Refusal(cid)
}

// LogDamaged reports whether a log's files are damaged or are being moved, so that a server
// must not have them open.
func (r *Report) LogDamaged(cid contract.CID) bool { return r.log(cid) }

// Refusal returns why a computer must not be woken, or nil.
func (r *Report) Refusal(cid contract.CID) error {
	for _, of := range []contract.CID{"", cid} {
		if err := r.Unfinished[of]; err != nil {
			return err
		}
	}
	return Error(r.Of(cid))
}

// Set replaces what the report says of one computer with the result of another inspection.
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

// Last returns the newest sequence in any readable record of a computer's log.
func (r *Report) Last(cid contract.CID) uint64 { return r.seen[cid] }

// Of returns the damage that keeps a computer from waking.
func (r *Report) Of(cid contract.CID) []bus.Damage {
	return append(slices.Clone(r.Shared), r.Computers[cid]...)
}

// Error describes a list of damage as an error; nil if the list is empty.
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

// known is what other files than the log itself say of a computer's log.
type known struct {
	head     ledger.Head
	hasHead  bool
	evidence state.Evidence
}

// Newer returns fault.Newer if a newer version of choir wrote the data directory: nothing of
// it may be changed then, for this version does not know what it means.
func Newer(ctx context.Context, dir *datadir.Dir) error {
	return identity.Newer(ctx, dir.Path("control.sqlite")) // the version of the directory is compared when it is opened
}

// FinishAndInspect finishes recoveries that were begun, and inspects the data directory.
func FinishAndInspect(ctx context.Context, dir *datadir.Dir) (*Report, error) {
	if err := bus.PutBack(dir.Path("nats"), ""); err != nil {
		return nil, fault.Wrap("recovery.FinishAndInspect", err)
	}
	stuck, err := Finish(dir)
	if err != nil {
		return nil, fault.Wrap("recovery.FinishAndInspect", err)
	}
	r, err := Inspect(ctx, dir)
	if err != nil {
		return nil, err
	}
	maps.Copy(r.Unfinished, stuck) // these errors say more than Inspect's
	return r, nil
}

// FinishAndInspectOne is Look for the files of one computer. Nobody may have them open; other computers
// may be awake.
func FinishAndInspectOne(ctx context.Context, dir *datadir.Dir, cid contract.CID) (*Report, error) {
	const op = "recovery.FinishAndInspectOne"
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

// Inspect reads the data directory and reports what is damaged. It writes nothing.
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

// inspect inspects one computer, or all of them.
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
		r = newReport() // what was found of other computers is dropped
		r.Unfinished = found.Unfinished
		r.Computers[only] = found.Computers[only]
	}
	if r.Unfinished[""] != nil {
		// The files are being moved, and only the recovery's journal knows where each of
		// them is.
		r.Shared = nil
		for cid := range r.Computers {
			r.Computers[cid] = nil
		}
		return r, nil
	}
	return r, r.logs(ctx, dir, only)
}

// unfinished adds the recoveries that are not finished.
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

// logs compares each log, or one, with what other files say of it.
func (r *Report) logs(ctx context.Context, dir *datadir.Dir, only contract.CID) error {
	facts := map[contract.CID]known{}
	marks := map[contract.CID][]uint64{}
	for cid := range r.Computers {
		if r.Unfinished[cid] != nil {
			r.Computers[cid] = nil
			continue // its files are being moved
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
		// If the state is not a copy of the whole log, the part behind it may contain
		// anything.
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
			// Such an end is what a killed process leaves; it is no damage.
		case unheard(d.Of):
			r.begun[d.Of] = true // the process was killed while it made the stream
		default:
			r.Computers[d.Of] = append(r.Computers[d.Of], d)
		}
	}
	return nil
}

func newReport() *Report {
	return &Report{Computers: map[contract.CID][]bus.Damage{}, Names: map[contract.CID]string{}, Created: map[contract.CID]time.Time{}, Open: map[contract.CID]bool{}, seen: map[contract.CID]uint64{}, begun: map[contract.CID]bool{}, Unfinished: map[contract.CID]error{}}
}

// old adds damage for a store in which all logs share one stream, as earlier versions wrote
// it, if one of its logs is damaged: such a store can't be used.
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

// parts adds parts that are missing although they existed, and checks the file of accounts.
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
		var older *identity.OlderError
		switch {
		case errors.As(err, &older):
			r.Accounts = append(r.Accounts, bus.Damage{File: identity.HeadFile, What: fault.Text(older.What)})
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

// branches adds damage for histories whose branch exists but names no commit, which a power
// cut can cause. Whether a branch matches its log is checked when the computer wakes.
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

// know reads a computer's head and what its state says. A state that can't be read is no
// damage, because it is made again from the log.
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

// compare compares a log with its head and its state.
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
		// Without a head, the state is all that the log can be compared with.
		e, err := contract.UnmarshalEvent(s.At[k.evidence.Last])
		if err != nil || contract.Digest(e) != k.evidence.Digest {
			r.add(cid, "nats", "event %d of the log is another one than the state was made from", k.evidence.Last)
		}
	}
	return len(r.Computers[cid]) == before
}

// account compares the store's account with the account key, and checks whether the other
// keys are valid.
func (r *Report) account(dir *datadir.Dir) error {
	damaged, err := embedded.DamagedKeys(dir.Path("keys"))
	if err != nil {
		return err
	}
	for _, file := range damaged {
		r.shared(filepath.Join("keys", file), "it is no key")
	}
	if file := vault.Damaged(dir.Path("keys")); file != "" {
		r.shared(filepath.Join("keys", file), "the secrets can't be read with the master key")
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
