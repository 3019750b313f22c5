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

// doubt is a new file that the machine's end may have emptied, in the state in which it
// was found.
type doubt struct {
	Path   wire.Path `json:"path"`
	Reason string    `json:"reason"` // as Fate tells it
	Stat   disk.Stat `json:"stat"`
}

// maxDoubted bounds how many are remembered.
const maxDoubted = 10_000

// Doubts are those files of one tree.
type Doubts struct {
	file  string           // in which they are kept
	files map[string]doubt // by path
}

// LoadDoubts reads those that are kept in a file.
func LoadDoubts(file string, logger *slog.Logger) (*Doubts, error) {
	ds := &Doubts{file: file, files: map[string]doubt{}}
	var list []doubt
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

// Has reports whether a path is doubted.
func (ds *Doubts) Has(p string) bool {
	if ds == nil { // they are not read yet
		return false
	}
	_, ok := ds.files[p]
	return ok
}

// Full reports whether no more are remembered.
func (ds *Doubts) Full() bool { return len(ds.files) >= maxDoubted }

// Add doubts a file in the state in which it is. It is not saved yet.
func (ds *Doubts) Add(p, reason string, st disk.Stat) {
	ds.files[p] = doubt{wire.Path(p), reason, st}
}

// Save keeps what is doubted, durably.
func (ds *Doubts) Save() error {
	if len(ds.files) == 0 {
		return disk.RemoveIfThere(ds.file)
	}
	list := make([]doubt, 0, len(ds.files))
	for _, d := range ds.files {
		list = append(list, d)
	}
	raw, err := json.Marshal(list)
	if err != nil {
		return err
	}
	return disk.WriteDurably(ds.file, raw)
}

// Without leaves out of a look what is doubted, as long as nobody has touched it; what
// somebody has is doubted no more if write is set.
func (ds *Doubts) Without(cap *scan.Capture, cands []scan.Candidate, write bool) ([]scan.Candidate, error) {
	if ds == nil || len(ds.files) == 0 {
		return cands, nil
	}
	still := map[string]doubt{}
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
		cap.Skipped = append(cap.Skipped, wire.Skip{Path: d.Path, Reason: fmt.Sprintf("%s since the machine stopped without a goodbye: write it again, or touch it if that is how it should be", what)})
	}
	if !write || len(still) == len(ds.files) {
		return kept, nil
	}
	ds.files = still
	return kept, ds.Save()
}
