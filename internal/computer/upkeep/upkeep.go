package upkeep

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"time"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/datadir"
	"choir.dev/choiros/internal/ledger"
	"choir.dev/choiros/internal/rpc"
	"choir.dev/choiros/internal/state"
	"choir.dev/choiros/internal/view"
	"choir.dev/choiros/internal/workspace"
)

// Blobs is what upkeep needs of the blobs of all computers.
type Blobs interface {
	Put(ctx context.Context, cid contract.CID, r io.Reader) (contract.BlobRef, int64, error)
	Open(ctx context.Context, cid contract.CID, ref contract.BlobRef) (io.ReadSeekCloser, int64, error)
	Collect(ctx context.Context, cid contract.CID, live func(contract.BlobRef) bool, olderThan time.Duration) (freed int64, err error)
}

// Options are the parts of one computer that are maintained, and those that this needs.
type Options struct {
	CID       contract.CID
	Dir       string // the computer's directory
	Log       *ledger.Log
	State     *state.Store
	Workspace *workspace.Workspace
	Blobs     Blobs
	// Free returns the free space of the disk.
	Free func() (datadir.Room, error)
	// Busy reports whether a run is working, which maintenance must not disturb.
	Busy   func() bool
	Logger *slog.Logger
}

// Upkeep does the recurring maintenance of one computer that is awake.
type Upkeep struct {
	options Options
	scrub   scrub // the search for damage
}

// New makes it; nothing runs yet.
func New(o Options) *Upkeep { return &Upkeep{options: o} }

// maintainEvery is how often an idle computer packs its history and drops the
// blobs that nothing refers to. A blob younger than BlobGrace may be about to
// be named by an event.
const (
	maintainEvery = time.Hour
	BlobGrace     = 24 * time.Hour
)

// Maintain tidies repeatedly until the computer closes.
func (u *Upkeep) Maintain(ctx context.Context) error {
	tick := time.NewTicker(maintainEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		if u.options.Busy() {
			continue
		}
		if err := u.Tidy(ctx, BlobGrace); err != nil && ctx.Err() == nil {
			u.options.Logger.Warn("maintenance failed", "error", err)
		}
	}
}

// Tidy packs the history and collects the blobs that no event has named for longer than
// grace.
func (u *Upkeep) Tidy(ctx context.Context, grace time.Duration) error {
	if err := u.options.Workspace.Maintain(ctx); err != nil {
		return err
	}
	if err := u.options.State.CaughtUp(ctx, u.options.Log); err != nil {
		return err
	}
	refs, err := u.options.State.BlobRefs(ctx)
	if err != nil {
		return err
	}
	freed, err := u.options.Blobs.Collect(ctx, u.options.CID, func(r contract.BlobRef) bool { return refs[r] != 0 }, grace)
	if freed > 0 {
		u.options.Logger.Info("blobs were collected", "bytes", freed)
	}
	return err
}

// Rebuild answers rpc.ComputerRebuild. Without check the state's content is
// replaced while it is in use, in one transaction.
func (u *Upkeep) Rebuild(ctx context.Context, check bool) (view.Rebuilt, error) {
	start := time.Now()
	if err := u.options.State.CaughtUp(ctx, u.options.Log); err != nil {
		return view.Rebuilt{}, err
	}
	var report state.Report
	var err error
	if check {
		u.scrub.waiting.Add(1)
		report, err = u.checkState(ctx, u.options.Log)
		u.scrub.waiting.Add(-1)
	} else {
		report, err = u.options.State.Replace(ctx, u.options.Log)
	}
	if err != nil {
		return view.Rebuilt{}, err
	}
	out := view.Rebuilt{Check: check, Equal: report.Clean(), Sequence: report.Seq, DurationMS: time.Since(start).Milliseconds()}
	for _, d := range report.Differences {
		out.Differences = append(out.Differences, fmt.Sprintf("%s: has %s; the log says %s", d.Table, orNothing(d.Have), orNothing(d.Want)))
	}
	if report.Unreadable != "" {
		out.Differences = append(out.Differences, report.Unreadable)
	}
	return out, nil
}

func orNothing(s string) string {
	if strings.TrimSpace(s) == "" {
		return "nothing"
	}
	return s
}

// Bind binds the methods about upkeep.
func (u *Upkeep) Bind(t rpc.Table) {
	rpc.Bind(t, rpc.ComputerRebuild, func(ctx context.Context, _ rpc.Caller, in rpc.RebuildRequest) (view.Rebuilt, error) {
		return u.Rebuild(ctx, in.Body.Check)
	})
}
