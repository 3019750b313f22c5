package document_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/blob"
	"choir.dev/choiros/internal/blob/disk"
	"choir.dev/choiros/internal/bus"
	"choir.dev/choiros/internal/document"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/ledger"
	"choir.dev/choiros/internal/state"
)

var (
	person = document.Author{Name: "ana", By: contract.Person("u1")}
	agent  = document.Author{Name: "director", By: contract.DirectorOf("")}
)

// open starts a real log, blob store and projection.
func open(t testing.TB) (*document.Documents, *state.Store, *ledger.Log) {
	t.Helper()
	dir := t.TempDir()
	quiet := slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn}))
	b, err := bus.Open(t.Context(), bus.Options{Dir: filepath.Join(dir, "nats"), Logger: quiet})
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
	st, err := state.Open(t.Context(), filepath.Join(dir, "state.sqlite"), state.WithBlobs(blobs), state.WithLogger(quiet))
	if err != nil {
		t.Fatal(err)
	}
	log, err := ledger.Open(t.Context(), b.JetStream(), ledger.Options{CID: contract.NewCID(), Blobs: blobs, Index: st})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var projecting sync.WaitGroup
	projecting.Go(func() {
		if err := st.Project(ctx, log); err != nil {
			t.Errorf("projection: %v", err)
		}
	})
	t.Cleanup(func() {
		cancel()
		projecting.Wait()
		if err := errors.Join(log.Close(), st.Close()); err != nil {
			t.Error(err)
		}
	})
	return document.New(log, st), st, log
}

func create(t testing.TB, d *document.Documents, body string) state.Revision {
	t.Helper()
	id := contract.NewID()
	r, err := d.Create(t.Context(), id, "A plan", "artifacts/runs/"+id+".md", body, agent)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestRevisionsFollowEachOther(t *testing.T) {
	d, st, log := open(t)
	r1 := create(t, d, "one\n")
	r2, err := d.Revise(t.Context(), r1.Document, 1, "one\ntwo\n", document.Author{Name: "ana", By: contract.Person(""), Cause: contract.DeriveID("c", "x")})
	if err != nil || r2.Revision != 2 {
		t.Fatalf("%+v %v", r2, err)
	}
	if again, err := d.Revise(t.Context(), r1.Document, 2, "one\ntwo\n", agent); err != nil || again.Revision != 2 {
		t.Errorf("a change that changes nothing made revision %d (%v)", again.Revision, err)
	}
	if err := st.Wait(t.Context(), log.Last()); err != nil {
		t.Fatal(err)
	}
	got, err := d.Get(t.Context(), r1.Document)
	if err != nil || got != r2 {
		t.Errorf("got %+v, want %+v (%v)", got, r2, err)
	}
	if at, err := d.At(t.Context(), r1.Path); err != nil || at.Document != r1.Document {
		t.Errorf("nothing at %s: %v", r1.Path, err)
	}
	h, err := d.History(t.Context(), r1.Document, 0, 0)
	if err != nil || len(h) != 2 || h[0].Author != "director" || h[1].Role != contract.KindPerson || h[1].Cause == "" {
		t.Errorf("history is %+v (%v)", h, err)
	}
	if old, err := d.Revision(t.Context(), r1.Document, 1); err != nil || old.Body != "one\n" {
		t.Errorf("revision 1 is %+v (%v)", old, err)
	}
}

func TestChangesApartAreRebased(t *testing.T) {
	d, _, _ := open(t)
	r := create(t, d, "a\nb\nc\nd\n")
	if _, err := d.Revise(t.Context(), r.Document, 1, "A\nb\nc\nd\n", person); err != nil {
		t.Fatal(err)
	}
	got, err := d.Revise(t.Context(), r.Document, 1, "a\nb\nc\nD\n", agent)
	if err != nil || got.Body != "A\nb\nc\nD\n" || got.Revision != 3 {
		t.Errorf("%+v %v", got, err)
	}
}

func TestAnAgentCannotOverwriteAUser(t *testing.T) {
	d, _, _ := open(t)
	r := create(t, d, "a\nb\nc\n")
	users, err := d.Revise(t.Context(), r.Document, 1, "a\nmine\nc\n", person)
	if err != nil {
		t.Fatal(err)
	}
	_, err = d.Revise(t.Context(), r.Document, 1, "a\nits\nc\n", agent)
	var ce *document.ConflictError
	if !fault.Is(err, fault.Conflict) || !errors.As(err, &ce) {
		t.Fatalf("%v", err)
	}
	if ce.Current.Body != users.Body || ce.Current.Revision != 2 || ce.Conflicts[0].Ours != "mine\n" || ce.Conflicts[0].Line != 2 {
		t.Errorf("the conflict carries %+v", ce)
	}
	// With the user's revision as its base, the agent's change is a deliberate one.
	if got, err := d.Revise(t.Context(), r.Document, 2, "a\nmine, and its\nc\n", agent); err != nil || got.Revision != 3 {
		t.Errorf("%+v %v", got, err)
	}
}

func TestAUserWinsOverAnAgentButNotOverAUser(t *testing.T) {
	d, _, _ := open(t)
	r := create(t, d, "a\nb\nc\nd\ne\n")
	if _, err := d.Revise(t.Context(), r.Document, 1, "a\nits\nc\nd\nE\n", agent); err != nil {
		t.Fatal(err)
	}
	got, err := d.Revise(t.Context(), r.Document, 1, "a\nmine\nc\nd\ne\n", person)
	if err != nil || got.Body != "a\nmine\nc\nd\nE\n" {
		t.Errorf("%+v %v", got, err)
	}
	if _, err := d.Revise(t.Context(), r.Document, 1, "a\nfrom another tab\nc\nd\ne\n", person); !fault.Is(err, fault.Conflict) {
		t.Errorf("a user's stale edit over a user's: %v", err)
	}
}

func TestWhatIsRefused(t *testing.T) {
	d, _, _ := open(t)
	r := create(t, d, "x\n")
	ctx := t.Context()
	if _, err := d.Revise(ctx, contract.NewID(), 1, "y", agent); !fault.Is(err, fault.NotFound) {
		t.Errorf("no such document: %v", err)
	}
	for _, base := range []int{-1, 0, 2, 1 << 40} {
		if _, err := d.Revise(ctx, r.Document, base, "y", agent); !fault.Is(err, fault.Invalid) {
			t.Errorf("base %d: %v", base, err)
		}
	}
	if _, err := d.Revise(ctx, r.Document, 1, "NUL \x00", agent); !fault.Is(err, fault.Invalid) {
		t.Errorf("NUL: %v", err)
	}
	if _, err := d.Revise(ctx, r.Document, 1, strings.Repeat("x", document.MaxBody+1), agent); !fault.Is(err, fault.Exhausted) {
		t.Errorf("too long: %v", err)
	}
	if _, err := d.Create(ctx, contract.NewID(), "Other", r.Path, "", agent); !fault.Is(err, fault.Conflict) {
		t.Errorf("a path that is taken: %v", err)
	}
	if again, err := d.Create(ctx, r.Document, r.Title, r.Path, "x\n", agent); err != nil || again.Seq != r.Seq {
		t.Errorf("a repeated create: %+v %v", again, err)
	}
	if _, err := d.Create(ctx, r.Document, r.Title, r.Path, "other", agent); !fault.Is(err, fault.Conflict) {
		t.Errorf("another create with the id: %v", err)
	}
	for _, p := range []string{"/etc/x.md", "artifacts/../x.md", "notes.md", "artifacts/x.txt", ""} {
		if _, err := d.Create(ctx, contract.NewID(), "T", p, "", agent); !fault.Is(err, fault.Invalid) {
			t.Errorf("path %q: %v", p, err)
		}
	}
}

// TestManyWriters has many writers change their own lines again and again, each based on the
// revision that it last saw: every last change must be in the text, and every change in the
// history.
func TestManyWriters(t *testing.T) {
	d, st, log := open(t)
	const writers, rounds = 4, 5
	var body strings.Builder
	for w := range writers {
		fmt.Fprintf(&body, "# %d\n\nwriter %d: 0\n\n", w, w)
	}
	r := create(t, d, body.String())
	var all sync.WaitGroup
	for w := range writers {
		all.Go(func() {
			base := r
			for n := 1; n <= rounds; n++ {
				next := strings.Replace(base.Body, fmt.Sprintf("writer %d: %d\n", w, n-1), fmt.Sprintf("writer %d: %d\n", w, n), 1)
				by := agent
				if w%2 == 0 {
					by = person
				}
				got, err := d.Revise(context.Background(), r.Document, base.Revision, next, by)
				if err != nil {
					t.Errorf("writer %d round %d: %v", w, n, err)
					return
				}
				base = got
			}
		})
	}
	all.Wait()
	if err := st.Wait(t.Context(), log.Last()); err != nil {
		t.Fatal(err)
	}
	got, err := d.Get(t.Context(), r.Document)
	if err != nil || got.Revision != 1+writers*rounds {
		t.Fatalf("revision %d, %v", got.Revision, err)
	}
	for w := range writers {
		if !strings.Contains(got.Body, fmt.Sprintf("writer %d: %d\n", w, rounds)) {
			t.Errorf("writer %d's last change is lost:\n%s", w, got.Body)
		}
	}
}

// slowLog delays one append and meanwhile refuses others, as the server does when it has stored an
// event that the projection has not seen yet.
type slowLog struct {
	*ledger.Log
	begun atomic.Bool
	held  chan struct{}
	goOn  chan struct{}
}

func (l *slowLog) Append(ctx context.Context, drafts ...contract.Draft) ([]contract.Event, error) {
	if l.begun.Swap(true) {
		select {
		case <-l.goOn:
		default:
			return nil, fault.New("slowLog.Append", fault.Conflict, "", errors.New("a newer event is there"))
		}
	} else {
		close(l.held)
		<-l.goOn
	}
	return l.Log.Append(ctx, drafts...)
}

// TestAWriterWaitsForTheOneBefore shows that a writer waits for another's revision that is being
// stored, however long that takes, rather than try against the same revision until it gives up.
func TestAWriterWaitsForTheOneBefore(t *testing.T) {
	_, st, log := open(t)
	r := create(t, document.New(log, st), "one\n\ntwo\n")
	slow := &slowLog{Log: log, held: make(chan struct{}), goOn: make(chan struct{})}
	d := document.New(slow, st)
	first := make(chan error, 1)
	go func() {
		_, err := d.Revise(context.Background(), r.Document, 1, "ONE\n\ntwo\n", agent)
		first <- err
	}()
	<-slow.held
	soon, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, err := d.Revise(soon, r.Document, 1, "one\n\nTWO\n", person); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("while another's revision was on its way: %v", err)
	}
	close(slow.goOn)
	if err := <-first; err != nil {
		t.Fatal(err)
	}
	got, err := d.Revise(t.Context(), r.Document, 1, "one\n\nTWO\n", person)
	if err != nil || got.Body != "ONE\n\nTWO\n" {
		t.Errorf("afterwards: %q, %v", got.Body, err)
	}
}

func TestALargeDocumentTravelsAsABlob(t *testing.T) {
	d, st, log := open(t)
	body := strings.Repeat("a line of a long document\n", 5000)
	r := create(t, d, body)
	if err := st.Wait(t.Context(), log.Last()); err != nil {
		t.Fatal(err)
	}
	if got, err := d.Get(t.Context(), r.Document); err != nil || got.Body != body {
		t.Errorf("%d bytes came back, %v", len(got.Body), err)
	}
}
