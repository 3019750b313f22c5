package upkeep

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/blob"
	"choir.dev/choiros/internal/blob/disk"
	"choir.dev/choiros/internal/bus"
	"choir.dev/choiros/internal/ledger"
	"choir.dev/choiros/internal/sandbox/local"
	"choir.dev/choiros/internal/state"
	"choir.dev/choiros/internal/workspace"
)

// putRefs stores a blob for every reference in a value, after giving each list one element.
func putRefs(t *testing.T, v reflect.Value, name string, put func(name string) contract.BlobRef) {
	t.Helper()
	switch {
	case v.Type() == reflect.TypeFor[contract.BlobRef]():
		v.SetString(string(put(name)))
	case v.Kind() == reflect.Struct && v.Type() != reflect.TypeFor[time.Time]():
		for i := range v.NumField() {
			if f := v.Type().Field(i); f.IsExported() {
				putRefs(t, v.Field(i), name+"."+f.Name, put)
			}
		}
	case v.Kind() == reflect.Slice && v.Type().Elem().Kind() == reflect.Struct:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		putRefs(t, v.Index(0), name+"[]", put)
	case v.Kind() == reflect.Pointer && v.Type().Elem().Kind() == reflect.Struct:
		v.Set(reflect.New(v.Type().Elem()))
		putRefs(t, v.Elem(), name+"*", put)
	}
}

// TestEveryLostBlobIsAnAlarm takes one event of every type, with its data in a blob and with a blob
// in every field that refers to one, and shows that the scrub reports each of these blobs when it
// is lost.
func TestEveryLostBlobIsAnAlarm(t *testing.T) {
	dir := t.TempDir()
	b, err := bus.Open(t.Context(), bus.Options{Dir: filepath.Join(dir, "nats"), Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
	blobs, err := disk.Open(filepath.Join(dir, "blobs"), blob.Quota{})
	if err != nil {
		t.Fatal(err)
	}
	c := New(Options{CID: contract.NewCID(), Blobs: blobs, Logger: slog.New(slog.DiscardHandler)})
	if c.options.Log, err = ledger.Open(t.Context(), b.JetStream(), ledger.Options{CID: c.options.CID}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.options.Log.Close() })
	if c.options.State, err = state.Open(t.Context(), filepath.Join(dir, "state.sqlite"), state.WithBlobs(blobs)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.options.State.Close() })

	at := t.TempDir()
	volumes, err := local.OpenVolumes(local.VolumesOptions{Dir: at, Shared: filepath.Join(at, "shared"), OnError: func(err error) { t.Error(err) }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = volumes.Close() })
	if c.options.Workspace, err = workspace.Open(t.Context(), workspace.Options{CID: c.options.CID, Keeper: noFiles{}, Log: c.options.Log, Volumes: volumes, AutoInterval: -1}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.options.Workspace.Close(); err != nil {
			t.Error(err)
		}
	})
	refs := map[string]contract.BlobRef{}
	put := func(name string) contract.BlobRef {
		ref, _, err := blobs.Put(t.Context(), c.options.CID, strings.NewReader(name))
		if err != nil {
			t.Fatal(err)
		}
		refs[name] = ref
		return ref
	}
	var events []contract.Event
	add := func(e contract.Event) {
		e.SpecVersion, e.ID, e.Source, e.Computer = "1.0", contract.NewID(), contract.Source(c.options.CID, contract.KindSystem), c.options.CID
		e.Time, e.DataContentType, e.Sequence, e.Epoch = time.Now().UTC(), "application/json", uint64(len(events)+1), 1
		events = append(events, e)
	}
	for _, info := range contract.Types() {
		add(contract.Event{Type: info.Type, DataRef: put("data of " + info.Type)})
		filled := reflect.New(reflect.TypeOf(info.New()).Elem())
		putRefs(t, filled.Elem(), info.Type, put)
		data, err := json.Marshal(filled.Interface())
		if err != nil {
			t.Fatal(err)
		}
		add(contract.Event{Type: info.Type, Data: data})
	}
	for len(events) > 0 {
		n := min(len(events), 50)
		if err := c.options.State.Apply(t.Context(), events[:n]); err != nil {
			t.Fatal(err)
		}
		events = events[n:]
	}
	elsewhere := 0
	for name, ref := range refs {
		hex := ref.Hex()
		at := filepath.Join(dir, "blobs", string(c.options.CID), hex[:2], hex)
		away := filepath.Join(dir, "away")
		if err := os.Rename(at, away); err != nil {
			t.Fatal(err)
		}
		scrub := func() []string {
			t.Helper()
			c.scrub.ref = ""
			for first := true; first || c.scrub.ref != ""; first = false {
				if err := c.scrubBlobs(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			return c.DamageNotes()
		}
		wounds := scrub()
		switch {
		case strings.HasSuffix(name, ".SHA256"): // hashes of a file, a text or the theme
			elsewhere++
			if len(wounds) != 0 {
				t.Errorf("%s is no blob, and is missed: %q", name, wounds)
			}
		case len(wounds) != 1 || !strings.Contains(wounds[0], hex) || !strings.Contains(wounds[0], "it is gone"):
			t.Errorf("the lost blob of %s gives %q", name, wounds)
		}
		if err := os.Rename(away, at); err != nil {
			t.Fatal(err)
		}
		if wounds := scrub(); len(wounds) != 0 {
			t.Errorf("the blob of %s is there again, and missed: %q", name, wounds)
		}
	}
	if len(refs) < len(contract.Types())+6 || elsewhere != 4 {
		t.Errorf("%d blobs were tried, %d of them hashes of something else", len(refs), elsewhere)
	}
}

// noFiles is a keeper without any file.
type noFiles struct{}

func (noFiles) Call(context.Context, string, any, any) error { return nil }
func (noFiles) Stream(context.Context, string, any, io.Reader) (*http.Response, error) {
	return nil, errors.New("there is nothing")
}
