package runspace

import (
	"context"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/document"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/ledger"
	"choir.dev/choiros/internal/state"
)

// Documents writes the runs' living documents.
type Documents struct {
	Log       *ledger.Log
	State     *state.Store
	Documents *document.Documents
}

// director is the author of a run's document.
func director(run string) document.Author {
	return document.Author{Name: string(contract.KindDirector), By: contract.DirectorOf(run), Run: run}
}

// StartRun implements ports.Documents.
func (d Documents) StartRun(ctx context.Context, id, run, title, path string, says document.Sections) error {
	_, err := d.Get(ctx, id)
	if fault.Is(err, fault.NotFound) {
		_, err = d.Documents.Create(ctx, id, title, path, document.RenderRun(title, says), director(run))
	}
	return err
}

// Get implements ports.Documents.
func (d Documents) Get(ctx context.Context, id string) (state.Revision, error) {
	if err := d.State.CaughtUp(ctx, d.Log); err != nil {
		return state.Revision{}, err
	}
	return d.Documents.Get(ctx, id)
}

// UpdateRun implements ports.Documents.
func (d Documents) UpdateRun(ctx context.Context, id, run string, says document.Sections) error {
	_, err := d.Documents.UpdateRun(ctx, id, says, director(run))
	return err
}

// Adopt implements ports.Documents.
func (d Documents) Adopt(ctx context.Context, run, task, path, title, body string) error {
	if err := d.State.CaughtUp(ctx, d.Log); err != nil {
		return err
	}
	switch _, err := d.State.DocumentAt(ctx, path); {
	case err == nil:
		return nil // what was published becomes its revision by the mirror
	case !fault.Is(err, fault.NotFound):
		return err
	}
	_, err := d.Documents.Create(ctx, contract.DeriveID(task, "document:"+path), title, path, body,
		document.Author{Name: string(contract.KindAssociate), By: contract.AssociateOf(task), Run: run, Task: task})
	return err
}

// Citations implements ports.Documents.
func (d Documents) Citations(ctx context.Context, labels []string) ([]contract.Citation, error) {
	if err := d.State.CaughtUp(ctx, d.Log); err != nil {
		return nil, err
	}
	found, err := d.State.Cited(ctx, labels)
	out := make([]contract.Citation, 0, len(found))
	for _, c := range found {
		out = append(out, c.Citation)
	}
	return out, err
}
