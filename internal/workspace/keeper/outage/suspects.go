package outage

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"

	"golang.org/x/sys/unix"

	"choir.dev/choiros/internal/workspace/keeper/disk"
	"choir.dev/choiros/internal/workspace/keeper/scan"
	"choir.dev/choiros/internal/workspace/keeper/wire"
)

// suspect is a new file, in no checkpoint yet, that a crash may have emptied, with the
// state in which it was found.
type suspect struct {
	Path   wire.Path `json:"path"`
	Reason string    `json:"reason"` // as Inspect tells it
	Stat   disk.Stat `json:"stat"`
}

// maxSuspects bounds how many are remembered.
const maxSuspects = 10_000

// Suspects are the files of one live tree that a crash may have emptied and that no
// checkpoint holds. They stay out of checkpoints until somebody changes them.
type Suspects struct {
	file  string             // in which they are kept
	files map[string]suspect // by path
}

// LoadSuspects reads the list that Save wrote to file. A list that is missing or damaged is
// empty; one that can't be read is an error.
func LoadSuspects(file string, logger *slog.Logger) (*Suspects, error) {
	ds := &Suspects{file: file, files: map[string]suspect{}}
	var list []suspect
	err := disk.ReadJSON(file, &list)
	var no unix.Errno
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return ds, nil
	case errors.As(err, &no):
		return nil, err
	case err != nil:
		logger.Warn("the list of files that a power cut may have emptied can't be read", "error", err)
	}
	for _, d := range list {
		ds.files[string(d.Path)] = d
	}
	return ds, nil
}

// Has reports whether a path is a suspect.
func (ds *Suspects) Has(p string) bool {
	if ds == nil { // they have not been read yet
		return false
	}
	_, ok := ds.files[p]
	return ok
}

// Full reports whether no more can be remembered.
func (ds *Suspects) Full() bool { return len(ds.files) >= maxSuspects }

// Add makes a file a suspect in its current state. It is not saved yet.
func (ds *Suspects) Add(p, reason string, st disk.Stat) {
	ds.files[p] = suspect{wire.Path(p), reason, st}
}

// Save writes the suspects, durably.
func (ds *Suspects) Save() error {
	if len(ds.files) == 0 {
		return disk.RemoveIfThere(ds.file)
	}
	list := make([]suspect, 0, len(ds.files))
	for _, d := range ds.files {
		list = append(list, d)
	}
	raw, err := json.Marshal(list)
	if err != nil {
		return err
	}
	return disk.WriteDurably(ds.file, raw)
}

// Without leaves suspect files out of a scan as long as nobody has touched them. One that
// somebody has touched is no longer suspect if write is set.
func (ds *Suspects) Without(cap *scan.Capture, cands []scan.Candidate, write bool) ([]scan.Candidate, error) {
	if ds == nil || len(ds.files) == 0 {
		return cands, nil
	}
	still := map[string]suspect{}
	kept := cands[:0]
	for _, c := range cands {
		d, ok := ds.files[c.Path]
		if !ok || c.Prev.Exists() || c.Stat != d.Stat {
			kept = append(kept, c)
			continue
		}
		still[c.Path] = d
		what := "is empty"
		if d.Reason != Emptied {
			what = "is full of zeroes"
		}
		cap.Skipped = append(cap.Skipped, wire.Skip{Path: d.Path, Reason: fmt.Sprintf("%s since the machine stopped without shutting down: write it again, or touch it if that is how it should be", what)})
	}
	if !write || len(still) == len(ds.files) {
		return kept, nil
	}
	ds.files = still
	return kept, ds.Save()
}
