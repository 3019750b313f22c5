// Package sources answers the methods about what a computer's tasks read and quoted.
package sources

import (
	"context"
	"errors"
	"io"
	"time"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/ledger"
	"choir.dev/choiros/internal/rpc"
	"choir.dev/choiros/internal/state"
	"choir.dev/choiros/internal/view"
)

// maxText bounds the text of a source that is shown, in bytes.
const maxText = 4 << 20

// Blobs has the sources' texts.
type Blobs interface {
	Open(ctx context.Context, cid contract.CID, ref contract.BlobRef) (io.ReadSeekCloser, int64, error)
}

// Sources answers the methods of one computer.
type Sources struct {
	CID   contract.CID
	Log   *ledger.Log
	State *state.Store
	Blobs func() Blobs
}

func of(s state.Source) view.Source {
	read, _ := time.Parse(time.RFC3339, s.Read) // it was checked when it was stored
	return view.Source{ID: s.ID, Address: s.Address, Title: s.Title, Media: s.Media, Bytes: s.Bytes, Truncated: s.Truncated, Read: read, Commit: s.Commit, Run: s.Run, Cited: s.Cited, Sequence: s.Seq}
}

func (a Sources) list(ctx context.Context, in rpc.LibraryRequest) ([]view.Source, bool, error) {
	if err := a.State.CaughtUp(ctx, a.Log); err != nil {
		return nil, false, err
	}
	rows, err := a.State.Sources(ctx, state.SourceFilter{Words: in.Words, Before: in.Before, Limit: min(in.Limit+1, state.MaxPage)})
	if err != nil {
		return nil, false, err
	}
	out := make([]view.Source, 0, len(rows))
	for _, s := range rows[:min(len(rows), in.Limit)] {
		out = append(out, of(s))
	}
	return out, len(rows) > in.Limit, nil
}

func (a Sources) show(ctx context.Context, id string) (view.Source, error) {
	if err := a.State.CaughtUp(ctx, a.Log); err != nil {
		return view.Source{}, err
	}
	s, err := a.State.Source(ctx, id)
	if err != nil {
		return view.Source{}, err
	}
	out := of(s)
	cited, err := a.State.CitationsOf(ctx, id)
	if err != nil {
		return out, err
	}
	for _, c := range cited {
		out.Citations = append(out.Citations, c.Citation)
	}
	f, _, err := a.Blobs().Open(ctx, a.CID, s.Text)
	if err != nil {
		return out, fault.Wrap("library.Show", err)
	}
	b, err := io.ReadAll(io.LimitReader(f, maxText))
	out.Text = string(b)
	return out, fault.Wrap("library.Show", errors.Join(err, f.Close()))
}

// Bind binds the methods.
func (a Sources) Bind(t rpc.Table) {
	rpc.Bind(t, rpc.LibraryList, func(ctx context.Context, _ rpc.Caller, in rpc.LibraryRequest) (rpc.List[view.Source], error) {
		return rpc.Listed(a.list(ctx, in))
	})
	rpc.Bind(t, rpc.LibraryShow, func(ctx context.Context, _ rpc.Caller, in rpc.OnSource) (view.Source, error) {
		return a.show(ctx, in.Source)
	})
}
