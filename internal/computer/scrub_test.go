package computer

import (
	"bytes"
	"database/sql"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/blob"
	"choir.dev/choiros/internal/blob/disk"
	"choir.dev/choiros/internal/datadir"
	"choir.dev/choiros/internal/workspace"
)

func (d *desk) damageEvents() []contract.DamageFound {
	d.t.Helper()
	events, err := d.log.Read(d.t.Context(), 0, 500)
	if err != nil {
		d.t.Fatal(err)
	}
	var out []contract.DamageFound
	for _, e := range events {
		if p, err := d.log.Payload(d.t.Context(), e); err == nil {
			if f, ok := p.(*contract.DamageFound); ok {
				out = append(out, *f)
			}
		}
	}
	return out
}

// TestAScrubHealsTheStateAndNamesALostBlob shows that a state with a row that differs from the log
// is noticed and rebuilt, and that a blob that an event refers to and that is gone is reported
// once, until it is there again.
func TestAScrubHealsTheStateAndNamesALostBlob(t *testing.T) {
	b, _ := newBus(t)
	dir := t.TempDir()
	blobs, err := disk.Open(dir, blob.Quota{})
	if err != nil {
		t.Fatal(err)
	}
	d := newDesk(t, b, blobs)
	t.Cleanup(func() { d.end() })
	data, err := datadir.Open(filepath.Join(t.TempDir(), "data"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := data.Close(); err != nil {
			t.Error(err)
		}
	})
	d.machine = &Machine{Blobs: blobs, Dir: data}
	if err := os.MkdirAll(d.path(), 0o700); err != nil {
		t.Fatal(err)
	}
	d.create("a text\n")
	d.settle()
	d.revise(strings.Repeat("a long text that travels as a blob\n", 4000), director)
	d.settle()
	d.upkeep = d.newUpkeep()
	scrub := func() { // the computer is so small that one slice scrubs all of it
		t.Helper()
		if err := d.upkeep.Slice(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	scrub()
	if got := d.damageEvents(); len(got) != 0 || len(d.DamageNotes()) != 0 {
		t.Fatalf("a whole computer: %+v, %q", got, d.DamageNotes())
	}
	db, err := sql.Open("sqlite", d.state.Path())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := db.Exec("UPDATE events SET data = replace(data, 'a text', 'b text') WHERE seq = (SELECT min(seq) FROM events WHERE data LIKE '%a text%')"); err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	scrub()
	if got := d.damageEvents(); len(got) != 1 || got[0].Part != "state.sqlite" || got[0].Healed == "" {
		t.Fatalf("a row that was changed: %+v", got)
	}
	scrub()
	if got := d.damageEvents(); len(got) != 1 || len(d.DamageNotes()) != 0 {
		t.Fatalf("after it was healed: %+v, %q", got, d.DamageNotes())
	}
	refs, err := d.state.NeededBlobs(t.Context())
	if err != nil || len(refs) == 0 {
		t.Fatalf("%d blobs (%v)", len(refs), err)
	}
	var lost string
	for ref := range refs {
		found, _ := filepath.Glob(filepath.Join(dir, string(d.cid), "??", ref.Hex()))
		if len(found) == 1 {
			lost = found[0]
		}
	}
	content, err := os.ReadFile(lost)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(lost); err != nil {
		t.Fatal(err)
	}
	scrub()
	scrub()
	if got := d.damageEvents(); len(got) != 2 || !strings.Contains(got[1].Part, filepath.Base(lost)) || got[1].Healed != "" {
		t.Errorf("a blob that is gone: %+v", got)
	}
	if got := d.DamageNotes(); len(got) != 1 || !strings.Contains(got[0], "damaged since") || !strings.Contains(got[0], "it is gone") {
		t.Errorf("the user is told %q", got)
	}
	if err := os.WriteFile(lost, content, 0o600); err != nil {
		t.Fatal(err)
	}
	scrub()
	if got := d.DamageNotes(); len(got) != 0 {
		t.Errorf("after it is back the user is told %q", got)
	}
	// The rows of other tables are compared with the log once a day.
	d.tables(t)
	// If the files still have the contents, a lost or damaged blob is made again from them.
	copied := filepath.Join(d.dir, "workspace", "copy")
	if err := os.WriteFile(copied, content, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := d.workspace.Checkpoint(t.Context(), workspace.CheckpointRequest{}); err != nil {
		t.Fatal(err)
	}
	for n, spoil := range []func() error{
		func() error { return os.Remove(lost) },
		func() error { return os.WriteFile(lost, content[1:], 0o600) },
		func() error { return errors.Join(os.Remove(copied), os.Remove(lost)) },
	} {
		if err := spoil(); err != nil {
			t.Fatal(err)
		}
		scrub()
		where := []string{"the file copy", "the file copy", "a checkpoint"}[n]
		if got := d.damageEvents(); len(got) != 5+n || got[4+n].Healed != where {
			t.Errorf("with a copy in %s: %+v", where, got)
		}
		if got, err := os.ReadFile(lost); err != nil || !bytes.Equal(got, content) || len(d.DamageNotes()) > 0 {
			t.Errorf("with a copy in %s it holds %d bytes, %v; the user is told %q", where, len(got), err, d.DamageNotes())
		}
	}
	d.setAside(t)
}

// tables changes a title in the state's file, past the store, and scrubs.
func (d *desk) tables(t *testing.T) {
	t.Helper()
	title := func() (out string) {
		db, err := sql.Open("sqlite", d.state.Path())
		if err != nil {
			t.Fatal(err)
		}
		defer db.Close()
		if err := db.QueryRow("SELECT title FROM documents").Scan(&out); err != nil {
			t.Fatal(err)
		}
		return out
	}
	was, before := title(), len(d.damageEvents())
	compared := filepath.Join(d.path(), "state.compared")
	yesterday := func() {
		if err := os.WriteFile(compared, []byte(time.Now().Add(-25*time.Hour).UTC().Format(time.RFC3339)), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	yesterday()
	spoil := func() {
		db, err := sql.Open("sqlite", d.state.Path())
		if err != nil {
			t.Fatal(err)
		}
		defer db.Close()
		if _, err := db.Exec("UPDATE documents SET title = 'nobody said so'"); err != nil {
			t.Fatal(err)
		}
	}
	spoil()
	if err := d.upkeep.Slice(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := d.damageEvents(); title() != was || len(got) != before+1 || !strings.Contains(got[before].What, "its table documents") || got[before].Healed == "" {
		t.Errorf("a title that was changed is %q; told %+v", title(), got[before:])
	}
	spoil()
	if err := d.upkeep.Slice(t.Context()); err != nil {
		t.Fatal(err)
	}
	if title() == was {
		t.Error("it is compared again within the day")
	}
	yesterday()
	if err := d.upkeep.Slice(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := d.damageEvents(); title() != was || len(got) != before+2 {
		t.Errorf("a day later it is %q; told %+v", title(), got[before:])
	}
}

// setAside shows that the record of a publish that was set aside is reported once, and does not
// count as damage afterwards.
func (d *desk) setAside(t *testing.T) {
	t.Helper()
	if err := os.MkdirAll(filepath.Join(d.dir, "workspace/.git/choir/unreadable/task-1-1700000000000000000"), 0o755); err != nil {
		t.Fatal(err)
	}
	before := len(d.damageEvents())
	for range 2 {
		if err := d.upkeep.Slice(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if got := d.damageEvents()[before:]; len(got) != 1 || !strings.Contains(got[0].What, "publish task-1 ") || !strings.Contains(got[0].Healed, "trash") || len(d.DamageNotes()) != 0 {
		t.Errorf("a record that was set aside: %+v, %q", got, d.DamageNotes())
	}
}
