package service

import (
	"context"
	"encoding/json"
	"time"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/view"
)

type snapshotAnswer struct {
	Sequence    uint64           `json:"sequence"`
	Computer    snapshotComputer `json:"computer"`
	Theme       *contract.Theme  `json:"theme"`
	Windows     []snapshotWindow `json:"windows"`
	Runs        []snapshotRun    `json:"runs"`
	Checkpoints []checkpoint     `json:"checkpoints"`
	Documents   []documentHead   `json:"documents"`
}

type snapshotComputer struct {
	CID       contract.CID `json:"cid"`
	Name      string       `json:"name"`
	Created   time.Time    `json:"created"`
	Driver    string       `json:"driver"`
	Isolation string       `json:"isolation"`
	Notes     []string     `json:"notes"`
}

type snapshotWindow struct {
	Window string               `json:"window"`
	App    string               `json:"app"`
	Title  string               `json:"title"`
	Frame  contract.Frame       `json:"frame"`
	State  contract.WindowState `json:"state"`
	Z      int                  `json:"z"`
	Props  map[string]string    `json:"props"`
}

type snapshotRun struct {
	Run        string                      `json:"run"`
	Prompt     string                      `json:"prompt"`
	Status     contract.RunStatus          `json:"status"`
	Started    time.Time                   `json:"started"`
	Ended      time.Time                   `json:"ended,omitzero"`
	Summary    string                      `json:"summary"`
	Verified   contract.VerificationStatus `json:"verified,omitempty"`
	Checkpoint string                      `json:"checkpoint"`
	Document   string                      `json:"document"`
	Usage      contract.Usage              `json:"usage"`
}

func snapshot(ctx context.Context, c call) (any, error) {
	if err := decode(c, &struct{}{}); err != nil {
		return nil, err
	}
	s, err := c.c.Snapshot(ctx)
	if err != nil {
		return nil, err
	}
	return snapshotOf(s)
}

// snapshotOf writes a snapshot in the desktop's words. The lists shrink from
// their old end until it fits.
func snapshotOf(s view.Snapshot) (snapshotAnswer, error) {
	a := snapshotAnswer{
		Sequence: s.Sequence, Theme: s.Theme, Checkpoints: checkpointsOf(s.Checkpoints), Windows: []snapshotWindow{}, Runs: []snapshotRun{}, Documents: []documentHead{},
		Computer: snapshotComputer{s.Computer.ID, s.Computer.Name, s.Computer.Created, s.Computer.Driver, s.Computer.Isolation, s.Computer.Notes},
	}
	if a.Computer.Notes == nil {
		a.Computer.Notes = []string{}
	}
	for _, w := range s.Windows {
		if w.Props == nil {
			w.Props = map[string]string{}
		}
		a.Windows = append(a.Windows, snapshotWindow{w.ID, w.App, w.Title, w.Frame, w.State, w.Z, w.Props})
	}
	for _, r := range s.Runs {
		a.Runs = append(a.Runs, snapshotRun{r.ID, r.Prompt, r.Status, r.Started, r.Ended, r.Summary, r.Verified, r.Checkpoint, r.Document, r.Usage})
	}
	for _, d := range s.Documents {
		a.Documents = append(a.Documents, headOf(d))
	}
	for {
		b, err := json.Marshal(a)
		if err != nil || len(b) <= maxAnswer || len(a.Runs)+len(a.Checkpoints)+len(a.Documents) == 0 {
			return a, err
		}
		a.Runs, a.Checkpoints, a.Documents = half(a.Runs), half(a.Checkpoints), half(a.Documents)
	}
}

func half[T any](list []T) []T { return list[:len(list)/2] }
