package chaos_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/client"
)

// witness is outside of what is killed: it is never restarted, and remembers what choir has
// acknowledged or shown.
type witness struct {
	mu       sync.Mutex
	seen     map[uint64]seenEvent // by sequence: every event that choir showed
	facts    []fact
	watchers sync.WaitGroup
	stop     context.CancelFunc
	ctx      context.Context
	clock    func() int // the instant, on a recorded disk; else always 0
}

type seenEvent struct {
	id     string
	digest [32]byte
	at     int
}

// fact is one acknowledgement: an event that must be in the log, and for a commit also its object.
type fact struct {
	what   string
	seq    uint64 // 0: any
	holds  func(e contract.Event, data map[string]any) bool
	kind   string // the event's type
	commit string
	large  string // of a commit: the SHA-256 of the large file in it
	at     int
}

func newWitness() *witness {
	w := &witness{seen: map[uint64]seenEvent{}, clock: func() int { return 0 }}
	w.ctx, w.stop = context.WithCancel(context.Background())
	return w
}

func (w *witness) close() {
	w.stop()
	w.watchers.Wait()
}

// watch follows the events while one choir lives.
func (w *witness) watch(c *client.Client, done <-chan struct{}) {
	ctx, cancel := context.WithCancel(w.ctx)
	w.watchers.Go(func() {
		defer cancel()
		select {
		case <-done:
		case <-ctx.Done():
		}
	})
	w.mu.Lock()
	last := uint64(0)
	for seq := range w.seen {
		last = max(last, seq)
	}
	w.mu.Unlock()
	w.watchers.Go(func() {
		for e, err := range c.Events(ctx, client.EventsOptions{After: last, Follow: true}) {
			if err != nil {
				return // choir has died, or the test is over
			}
			w.mu.Lock()
			w.seen[e.Sequence] = seenEvent{e.ID, contract.Digest(e), w.clock()}
			w.mu.Unlock()
		}
	})
}

func (w *witness) note(f fact) {
	w.mu.Lock()
	defer w.mu.Unlock()
	f.at = w.clock()
	w.facts = append(w.facts, f)
}

// until returns a witness with what this one knew at an instant.
func (w *witness) until(at int) *witness {
	w.mu.Lock()
	defer w.mu.Unlock()
	then := newWitness()
	for seq, s := range w.seen {
		if s.at <= at {
			then.seen[seq] = s
		}
	}
	for _, f := range w.facts {
		if f.at <= at {
			then.facts = append(then.facts, f)
		}
	}
	return then
}

func (w *witness) prompted(run string, seq uint64) {
	w.note(fact{what: "the prompt of run " + run, seq: seq, kind: "prompt.submitted", holds: func(e contract.Event, _ map[string]any) bool { return e.Run == run }})
}

func (w *witness) put(path, sha string) {
	w.note(fact{what: "the file " + path, kind: "file.written", holds: func(_ contract.Event, d map[string]any) bool {
		return d["path"] == path && d["sha256"] == "sha256:"+sha
	}})
}

func (w *witness) checkpoint(commit string) {
	w.note(fact{what: "checkpoint " + commit, kind: "checkpoint.created", commit: commit, holds: func(_ contract.Event, d map[string]any) bool { return d["commit"] == commit }})
}

// large is checkpoint with the large file's hash in it.
func (w *witness) large(commit, sum string) {
	w.note(fact{what: "checkpoint " + commit, kind: "checkpoint.created", commit: commit, large: sum, holds: func(_ contract.Event, d map[string]any) bool { return d["commit"] == commit }})
}

func (w *witness) restored(commit string) {
	w.note(fact{what: "restore " + commit, kind: "checkpoint.restored", commit: commit, holds: func(_ contract.Event, d map[string]any) bool { return d["checkpoint"] == commit }})
}

func (w *witness) commanded(id string, code int, seq uint64) {
	w.note(fact{what: "command " + id, seq: seq, kind: "command.finished", holds: func(_ contract.Event, d map[string]any) bool {
		return d["command"] == id && d["exit_code"] == float64(code)
	}})
}

// history is a log as it was read back.
type history struct {
	events []contract.Event
	data   []map[string]any // nil if they are in a blob
}

func readHistory(ctx context.Context, c *client.Client) (*history, error) {
	h := &history{}
	for e, err := range c.Events(ctx, client.EventsOptions{}) {
		if err != nil {
			return nil, err
		}
		if e.Sequence != uint64(len(h.events)+1) {
			return nil, fmt.Errorf("event %d follows %d", e.Sequence, len(h.events))
		}
		var data map[string]any
		if e.DataRef == "" {
			if err := json.Unmarshal(e.Data, &data); err != nil {
				return nil, fmt.Errorf("event %d: %w", e.Sequence, err)
			}
		}
		h.events, h.data = append(h.events, e), append(h.data, data)
	}
	return h, nil
}

// testimony is what a witness knows at one instant.
type testimony struct {
	seen  map[uint64]seenEvent
	facts []fact
}

func (w *witness) testify() testimony {
	w.mu.Lock()
	defer w.mu.Unlock()
	return testimony{maps.Clone(w.seen), slices.Clone(w.facts)}
}

// confront compares a testimony with the log, which was read after it, and with the objects.
func (w testimony) confront(h *history, gitDir string) error {
	var errs []error
	for seq, s := range w.seen {
		if seq > uint64(len(h.events)) {
			errs = append(errs, fmt.Errorf("event %d (%s) was shown and is gone", seq, s.id))
			continue
		}
		if e := h.events[seq-1]; e.ID != s.id || contract.Digest(e) != s.digest {
			errs = append(errs, fmt.Errorf("event %d was %s and is %s now", seq, s.id, e.ID))
		}
	}
	byKind := map[string][]int{}
	for i, e := range h.events {
		byKind[e.Type] = append(byKind[e.Type], i)
	}
	var commits []string
	for _, f := range w.facts {
		found := false
		for _, i := range byKind[f.kind] {
			if (f.seq == 0 || h.events[i].Sequence == f.seq) && f.holds(h.events[i], h.data[i]) {
				found = true
				break
			}
		}
		if !found {
			errs = append(errs, fmt.Errorf("%s was acknowledged, and no %s (sequence %d) tells of it", f.what, f.kind, f.seq))
		}
		if f.commit != "" {
			commits = append(commits, f.commit)
		}
		if f.large != "" {
			if err := haveLarge(gitDir, f.commit, f.large); err != nil {
				errs = append(errs, err)
			}
		}
	}
	for _, i := range byKind["checkpoint.created"] {
		commits = append(commits, fmt.Sprint(h.data[i]["commit"]))
	}
	return errors.Join(append(errs, haveCommits(gitDir, commits))...)
}

// haveCommits checks with git that commits exist.
func haveCommits(gitDir string, commits []string) error {
	cmd := git(gitDir, "cat-file", "--batch-check")
	cmd.Stdin = strings.NewReader(strings.Join(commits, "\n") + "\n")
	out, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("git cat-file: %w: %s", err, out)
	}
	var errs []error
	for line := range strings.Lines(string(out)) {
		if f := strings.Fields(line); len(f) != 3 || f[1] != "commit" {
			errs = append(errs, fmt.Errorf("git cat-file: %s", strings.TrimSpace(line)))
		}
	}
	return errors.Join(errs...)
}

// git runs stock git on a workspace's history, without a work tree.
func git(gitDir string, args ...string) *exec.Cmd {
	cmd := exec.Command("git", append([]string{"-c", "safe.directory=*", "--git-dir", gitDir}, args...)...)
	cmd.Dir = filepath.Dir(gitDir)
	return cmd
}
