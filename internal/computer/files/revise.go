package files

import (
	"context"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/document"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/view"
)

// Revise answers rpc.DocumentRevise: the revision is in the log and in the file.
func (f *Files) Revise(ctx context.Context, by contract.Actor, id string, r view.Revise) (view.Revised, error) {
	const op = "files.Revise"
	if err := f.options.Reserve.Check(op); err != nil {
		return view.Revised{}, err
	}
	made, err := f.options.Mirror.Revise(ctx, id, r.Base, r.Text, document.By(by))
	if err != nil {
		return view.Revised{}, fault.Wrap(op, err)
	}
	return view.Revised{ID: made.Document, Revision: made.Revision, Merged: made.Body != r.Text, SHA256: made.SHA256, Sequence: made.Seq}, nil
}
