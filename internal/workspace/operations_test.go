package workspace_test

import (
	"archive/tar"
	"bytes"
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/workspace"
	"choir.dev/choiros/internal/workspace/keeper/wire"
)

var errLost = errors.New("lost on the way")

// lossyKeeper is a keeper to which confirmations of operations get lost.
type lossyKeeper struct{ wire.Keeper }

func (f lossyKeeper) Call(ctx context.Context, verb string, in, out any) error {
	if verb == "operations-logged" {
		return errLost
	}
	return f.Keeper.Call(ctx, verb, in, out)
}

// smallArchive holds one file of one byte.
func smallArchive(t *testing.T) *bytes.Buffer {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	if err := w.WriteHeader(&tar.Header{Name: "f", Typeflag: tar.TypeReg, Mode: 0o644, Size: 1}); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write([]byte("f")); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return &b
}

// TestWhatTookEffectIsToldOnce moves a file, brings one back from the trash and adds a repository,
// while either the event or the keeper's confirmation that it was logged is lost. The next start
// appends the event as it would have been, and only once.
func TestWhatTookEffectIsToldOnce(t *testing.T) {
	by := contract.Person("somebody")
	for name, test := range map[string]struct {
		before func(t *testing.T, h *host) string
		do     func(t *testing.T, h *host, id string) error
		want   []string // type and data of each event
	}{
		"move": {
			do: func(t *testing.T, h *host, _ string) error {
				return h.Move(t.Context(), "workspace/a", "workspace/b", by)
			},
			want: []string{`file.removed {"path":"workspace/a"}`, `file.written {"path":"workspace/b","size":2,"deed":"moved","from":"workspace/a"}`},
		},
		"back from the trash": {
			before: func(t *testing.T, h *host) string {
				r, err := h.Remove(t.Context(), "workspace/a", "", by)
				if err != nil {
					t.Fatal(err)
				}
				return r.ID
			},
			do: func(t *testing.T, h *host, id string) error {
				_, err := h.Untrash(t.Context(), id, "", by)
				return err
			},
			want: []string{`file.removed {"path":"workspace/a","trash":"ID"}`, `file.written {"path":"workspace/a","size":2,"deed":"back"}`},
		},
		"add": {
			do: func(t *testing.T, h *host, _ string) error {
				_, err := h.Add(t.Context(), workspace.AddRequest{Name: "new", Origin: "/home/me/new", Remote: "https://example.org/new", By: contract.Person("somebody")}, smallArchive(t))
				return err
			},
			want: []string{`repository.added {"path":"workspace/new","origin":"/home/me/new","remote":"https://example.org/new","files":1,"bytes":1}`},
		},
	} {
		for _, lost := range []string{"", "event", "word"} {
			t.Run(strings.TrimSpace(name+" "+lost), func(t *testing.T) {
				h := newHost(t)
				id := ""
				if test.before != nil {
					id = test.before(t, h)
				}
				switch lost {
				case "event":
					h.log.fail = func(d contract.Draft) error {
						if strings.HasPrefix(d.Type, "file.") || d.Type == "repository.added" {
							return errLost
						}
						return nil
					}
				case "word":
					h.wrap = func(k wire.Keeper) wire.Keeper { return lossyKeeper{k} }
					h.restart()
				}
				if err := test.do(t, h, id); lost == "" && err != nil || lost != "" && !errors.Is(err, errLost) {
					t.Fatalf("it ended with %v", err)
				}
				h.log.fail, h.wrap = nil, nil
				for range 2 {
					h.restart()
					var got []string
					for _, e := range h.log.all() {
						if strings.HasPrefix(e.Type, "file.") || e.Type == "repository.added" {
							got = append(got, e.Type+" "+strings.ReplaceAll(string(e.Data), cmp.Or(id, "no entry"), "ID"))
							if e.User != "somebody" {
								t.Errorf("%s is by %q", e.Type, e.User)
							}
						}
					}
					if !slices.Equal(got, test.want) {
						t.Errorf("the log holds\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(test.want, "\n"))
					}
				}
			})
		}
	}
}

// TestAnyNameIsToldAndHoldsNothingUp puts, moves and removes files with names that are not text,
// and with names that no file can have. The former get events like any other file, and the latter
// are refused before anything is done.
func TestAnyNameIsToldAndHoldsNothingUp(t *testing.T) {
	h := newHost(t)
	ctx := t.Context()
	deep := "workspace" + strings.Repeat("/"+strings.Repeat("d", 250), 12)
	for _, p := range []string{"workspace/a\x01\nb", "workspace/ ", "workspace/\xff\xfe", "workspace/\u2028", deep + "/f"} {
		to := p + "2"
		h.log.reset()
		if _, err := h.Write(ctx, p, strings.NewReader("x"), workspace.WriteOptions{}); err != nil {
			t.Fatalf("write %q: %v", p, err)
		}
		if err := h.Move(ctx, p, to, contract.Person("")); err != nil {
			t.Fatalf("move %q: %v", p, err)
		}
		if _, err := h.Remove(ctx, to, "", contract.Person("")); err != nil {
			t.Fatalf("remove %q: %v", to, err)
		}
		var told []string
		for _, e := range h.log.all() {
			told = append(told, e.Type+" "+e.Subject)
		}
		want := []string{"file.written " + contract.FileSubject(p), "file.removed " + contract.FileSubject(p), "file.written " + contract.FileSubject(to), "file.removed " + contract.FileSubject(to)}
		if !slices.Equal(told, want) {
			t.Errorf("%q: told %q; want %q", p, told, want)
		}
	}
	long := strings.Repeat("n", 256)
	for _, p := range []string{"workspace/made/" + long, "workspace/" + long + "/f", deep + "/" + strings.Repeat("e/", 300) + "f"} {
		if _, err := h.Write(ctx, p, strings.NewReader("x"), workspace.WriteOptions{}); !fault.Is(err, fault.Invalid) {
			t.Errorf("write %q: %v; want it refused", p, err)
		}
		if _, err := h.Remove(ctx, p, "", contract.Person("")); !fault.Is(err, fault.Invalid) {
			t.Errorf("remove %q: %v; want it refused", p, err)
		}
	}
	for _, p := range []string{"workspace/made", deep + "/e"} {
		if _, err := h.Stat(ctx, p); !fault.Is(err, fault.NotFound) {
			t.Errorf("what was refused has made %q: %v", p, err)
		}
	}
	if _, err := h.Write(ctx, "workspace/next", strings.NewReader("x"), workspace.WriteOptions{}); err != nil {
		t.Errorf("the next put: %v", err)
	}
}

// TestTheExecutableBitIsKept shows that a put may say whether a file is executable, and that a put
// that does not say it leaves the bit as it is.
func TestTheExecutableBitIsKept(t *testing.T) {
	h := newHost(t)
	ctx := t.Context()
	yes, no := true, false
	for i, step := range []struct{ exec, want *bool }{{nil, &no}, {&yes, &yes}, {nil, &yes}, {&no, &no}, {nil, &no}} {
		wr, err := h.Write(ctx, "workspace/tool", strings.NewReader(strings.Repeat("x", i)), workspace.WriteOptions{Exec: step.exec})
		if err != nil || wr.Exec != *step.want {
			t.Errorf("step %d: executable %v, %v; want %v", i, wr.Exec, err, *step.want)
		}
	}
}

// TestAnOperationOfAnEarlierVersionIsToldAsThat shows that the event of an operation that an
// earlier version made, and may have logged, is appended again as that version would have, without
// the details that let it be undone.
func TestAnOperationOfAnEarlierVersionIsToldAsThat(t *testing.T) {
	h := newHost(t)
	h.log.reset()
	h.wrap = func(k wire.Keeper) wire.Keeper { return earlier{k} }
	h.restart()
	var told []string
	for _, e := range h.log.all() {
		if strings.HasPrefix(e.Type, "file.") {
			told = append(told, e.Type+" "+string(e.Data))
		}
	}
	if want := []string{`file.removed {"path":"workspace/gone"}`, `file.written {"path":"workspace/there","size":1}`}; !slices.Equal(told, want) {
		t.Errorf("told is\n%s\nwant\n%s", strings.Join(told, "\n"), strings.Join(want, "\n"))
	}
}

// earlier is a keeper that still has operations of an earlier version to report.
type earlier struct{ wire.Keeper }

func (k earlier) Call(ctx context.Context, verb string, in, out any) error {
	if operations, ok := out.(*[]wire.Operation); ok && verb == "unlogged-operations" {
		*operations = []wire.Operation{{ID: "20260101T000000-000000001-0000000000000001", Op: "remove", Path: "workspace/gone", At: 1}, {ID: "20260101T000000-000000002-0000000000000002", Op: "write", Path: "workspace/there", At: 2, Size: 1}}
		return nil
	}
	return k.Keeper.Call(ctx, verb, in, out)
}

// waitingKeeper is a keeper that receives confirmations only when it is allowed to.
type waitingKeeper struct {
	wire.Keeper
	let   chan struct{}
	heard *atomic.Int64
}

func (w waitingKeeper) Call(ctx context.Context, verb string, in, out any) error {
	if verb == "operations-logged" {
		select {
		case <-w.let:
			w.heard.Add(1)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return w.Keeper.Call(ctx, verb, in, out)
}

// TestAPutDoesNotWaitUntilTheKeeperHeard shows that a put is acknowledged when its event is logged.
// The keeper receives the confirmation later, together with others, and at the latest when it is
// closed.
func TestAPutDoesNotWaitUntilTheKeeperHeard(t *testing.T) {
	h := newHost(t)
	keeper := waitingKeeper{let: make(chan struct{}), heard: &atomic.Int64{}}
	h.wrap = func(k wire.Keeper) wire.Keeper { keeper.Keeper = k; return keeper }
	h.restart()
	for _, text := range []string{"one", "two", "three"} {
		if _, err := h.Write(t.Context(), "workspace/put", strings.NewReader(text), workspace.WriteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	untold := func() int {
		t.Helper()
		operations, err := h.engine.UnloggedOperations(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return len(operations)
	}
	if n := untold(); n != 3 {
		t.Errorf("the keeper does not know of %d puts that it was told of; it was told of none", n)
	}
	close(keeper.let)
	if err := h.Close(); err != nil {
		t.Fatal(err)
	}
	if n := untold(); n != 0 || keeper.heard.Load() == 0 {
		t.Errorf("after the shutdown the keeper does not know of %d puts that they are logged", n)
	}
	h.wrap = nil
	h.restart()
	if n := puts(h); n != 3 {
		t.Errorf("%d events of 3 puts", n)
	}
}

// TestWhatTheKeeperDidNotHearIsNotLoggedTwice shows that an operation whose confirmation the keeper
// did not receive is appended again with the next change, and that the log recognises it.
func TestWhatTheKeeperDidNotHearIsNotLoggedTwice(t *testing.T) {
	h := newHost(t)
	h.wrap = func(k wire.Keeper) wire.Keeper { return lossyKeeper{k} }
	h.restart()
	if _, err := h.Write(t.Context(), "workspace/put", strings.NewReader("one"), workspace.WriteOptions{}); err != nil {
		t.Fatalf("a put that is in the log: %v", err)
	}
	h.wrap = nil
	for range 2 {
		h.restart()
		if n := puts(h); n != 1 {
			t.Errorf("%d events of a put", n)
		}
		if operations, err := h.engine.UnloggedOperations(t.Context()); err != nil || len(operations) > 0 {
			t.Errorf("untold: %v, %v", operations, err)
		}
	}
}

func puts(h *host) (n int) {
	for _, e := range h.log.all() {
		if e.Type == "file.written" {
			n++
		}
	}
	return n
}
