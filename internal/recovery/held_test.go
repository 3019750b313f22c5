package recovery_test

import (
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"testing"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/datadir"
	"choir.dev/choiros/internal/recovery"
)

// deleted makes the state that a process leaves which died after the server had deleted a
// log that it could not open: only the second names of the log's files.
func deleted(t *testing.T, dir *datadir.Dir, cid contract.CID) {
	t.Helper()
	store, held := dir.Path("nats", "jetstream"), dir.Path("nats", "held")
	found, err := filepath.Glob(filepath.Join(store, "*", "streams", contract.StreamLog(cid)))
	if err != nil || len(found) != 1 {
		t.Fatal(found, err)
	}
	if err := os.MkdirAll(held, 0o700); err != nil {
		t.Fatal(err)
	}
	err = filepath.WalkDir(found[0], func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		below, err := filepath.Rel(store, path)
		if err != nil {
			return err
		}
		return os.Link(path, filepath.Join(held, url.PathEscape(below)))
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(found[0]); err != nil {
		t.Fatal(err)
	}
}

// TestWhatTheServerDeletedIsBackBeforeAnybodyLooks: an inspection, of all computers or of
// one, and a recovery see the log whose files a dead process left under their second names.
func TestWhatTheServerDeletedIsBackBeforeAnybodyLooks(t *testing.T) {
	for name, look := range map[string]func(*datadir.Dir, contract.CID) (*recovery.Report, error){
		"all": func(d *datadir.Dir, _ contract.CID) (*recovery.Report, error) {
			return recovery.FinishAndInspect(t.Context(), d)
		},
		"one": func(d *datadir.Dir, cid contract.CID) (*recovery.Report, error) {
			return recovery.FinishAndInspectOne(t.Context(), d, cid)
		},
		"recovered": func(d *datadir.Dir, _ contract.CID) (*recovery.Report, error) {
			done, err := recovery.Recover(t.Context(), recovery.Options{Dir: d, Driver: "local"})
			if err == nil && len(done.Found) > 0 {
				t.Errorf("it was recovered: %v", done.Found)
			}
			if err != nil {
				return nil, err
			}
			return recovery.Inspect(t.Context(), d)
		},
	} {
		t.Run(name, func(t *testing.T) {
			a, b := contract.NewCID(), contract.NewCID()
			dir := fill(t, a, b)
			before := stored(t, dir)
			deleted(t, dir, a)
			if r, err := recovery.Inspect(t.Context(), dir); err != nil || r.Log(a) == nil {
				t.Errorf("nothing is missing without it: %v", err)
			}
			r, err := look(dir, a)
			if err != nil || r.Refusal(a) != nil {
				t.Fatalf("%v, %v", err, r.Refusal(a))
			}
			if after := stored(t, dir); before[a] == "" || after[a] != before[a] {
				t.Error("the log is not what it was")
			}
			if left, err := os.ReadDir(dir.Path("nats", "held")); err != nil || len(left) > 0 {
				t.Errorf("second names are left: %v, %v", left, err)
			}
		})
	}
}
