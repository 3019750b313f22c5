package bus_test

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/bus"
)

// files returns a stream's description and its checksum.
func files(t *testing.T, dir string) (description, sum string) {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(dir, "nats", "jetstream", "*", "streams", "*", "meta.inf"))
	if err != nil || len(found) != 1 {
		t.Fatalf("%v %v", found, err)
	}
	return found[0], filepath.Join(filepath.Dir(found[0]), "meta.sum")
}

// TestAStreamIsChangedOver: a stream that was made by an earlier version republishes its log. It
// stops doing so when its log is opened, and its description is rewritten only then. What a power
// cut leaves between the two files of a description is completed when the server starts; any other
// mismatch is damage.
func TestAStreamIsChangedOver(t *testing.T) {
	dir, cid := t.TempDir(), contract.NewCID()
	b := open(t, dir)
	old := bus.StreamConfig(cid, 1)
	old.RePublish = &jetstream.RePublish{Source: contract.SubjectLogAll(cid), Destination: contract.SubjectLive(cid)}
	if _, err := b.JetStream().CreateStream(t.Context(), old); err != nil {
		t.Fatal(err)
	}
	if err := b.Conn().Publish("log."+string(cid)+".user.x", []byte("a message")); err != nil {
		t.Fatal(err)
	}
	meta, sum := files(t, dir)
	before, err := os.ReadFile(sum)
	if err != nil {
		t.Fatal(err)
	}
	ensure(t, b, cid)
	s, err := b.JetStream().Stream(t.Context(), contract.StreamLog(cid))
	if err != nil || s.CachedInfo().Config.RePublish != nil || s.CachedInfo().State.Msgs != 1 {
		t.Fatalf("%+v %v", s.CachedInfo(), err)
	}
	was, err := os.Stat(meta)
	if err != nil {
		t.Fatal(err)
	}
	ensure(t, b, cid)
	if is, err := os.Stat(meta); err != nil || !os.SameFile(was, is) {
		t.Errorf("a stream that is as it should be was described anew: %v", err)
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	after, err := os.ReadFile(sum)
	if err != nil || bytes.Equal(before, after) {
		t.Fatalf("nothing was changed: %v", err)
	}
	description, err := os.ReadFile(meta)
	if err != nil {
		t.Fatal(err)
	}
	damaged := func() bool {
		t.Helper()
		damage, err := bus.ReadStore(t.Context(), filepath.Join(dir, "nats"), cid, func(bus.Message) error { return nil })
		if err != nil {
			t.Fatal(err)
		}
		return len(damage) > 0
	}
	write := func(name string, content []byte) {
		t.Helper()
		if err := os.WriteFile(name, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(sum, before)
	for at := range description {
		write(meta, append(append(bytes.Clone(description[:at]), description[at]^1), description[at+1:]...))
		if !damaged() {
			t.Errorf("byte %d of a description is another one, and that is no damage", at)
		}
	}
	write(meta, description)
	if damaged() {
		t.Error("what a power cut left is damage")
	}
	b = open(t, dir)
	s, err = b.JetStream().Stream(t.Context(), contract.StreamLog(cid))
	if err != nil || s.CachedInfo().State.Msgs != 1 {
		t.Fatalf("%v", err)
	}
	if now, err := os.ReadFile(sum); err != nil || !bytes.Equal(now, after) {
		t.Errorf("the sum is not the description's: %v", err)
	}
}
