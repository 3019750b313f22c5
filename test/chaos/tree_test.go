package chaos_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"choir.dev/choiros/internal/fault"
)

const themePath = "artifacts/system/theme.json"

// gone stands for a file that does not exist.
const gone = "\x00gone"

// values are the possible contents of a file; one if it is certain.
type values []string

func (v values) has(s string) bool { return slices.Contains(v, s) }

// tree is what the workspace must contain, as far as the witness knows.
type tree struct {
	mu    sync.Mutex // guards known while several goroutines work
	known map[string]values
	// either is set while a restore's outcome is unknown: the whole tree equals one of these.
	either []map[string]values
	// clock and told say what was known of files at which instant, on a recorded disk.
	clock func() int
	told  []saying
}

// saying is that a file has a content, or may have it, from an instant on.
type saying struct {
	at            int
	path, content string
	certain       bool
}

func newTree() *tree { return &tree{known: map[string]values{}} }

// until returns the tree as it was known at an instant; known holds for files of which nothing was
// said yet.
func (t *tree) until(at int, known map[string]values) *tree {
	t.mu.Lock()
	defer t.mu.Unlock()
	then := &tree{known: maps.Clone(known)}
	for _, s := range t.told {
		switch {
		case s.at > at:
		case s.certain:
			then.is(s.path, s.content)
		default:
			then.maybe(s.path, s.content)
		}
	}
	return then
}

func (t *tree) tell(path, content string, certain bool) {
	if t.clock != nil {
		t.told = append(t.told, saying{t.clock(), path, content, certain})
	}
}

func (t *tree) at(path string) values {
	if v, ok := t.known[path]; ok {
		return v
	}
	return values{gone}
}

// is records what a file contains now.
func (t *tree) is(path, content string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.known[path] = values{content}
	t.tell(path, content, true)
}

// maybe records what a file may contain now, besides its earlier contents.
func (t *tree) maybe(path, content string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.known[path] = append(slices.Clone(t.at(path)), content)
	t.tell(path, content, false)
}

func (t *tree) copy() map[string]values {
	out := map[string]values{}
	for p, v := range t.known {
		out[p] = slices.Clone(v)
	}
	return out
}

// restoredTo returns the tree after a restore to an earlier one, without files that are newer.
func (t *tree) restoredTo(old map[string]values) map[string]values {
	out := map[string]values{}
	for p := range t.known {
		out[p] = values{gone}
	}
	maps.Copy(out, old)
	return out
}

// read reads a file through the API.
func (w *world) read(ctx context.Context, path string) (string, error) {
	r, _, err := w.c.Get(ctx, path)
	if fault.Is(err, fault.NotFound) {
		return gone, nil
	}
	if err != nil {
		return "", err
	}
	b, err := io.ReadAll(io.LimitReader(r, 1<<20))
	return string(b), errors.Join(err, r.Close())
}

func (w *world) mustRead(path string) string {
	w.t.Helper()
	ctx, cancel := w.soon()
	defer cancel()
	s, err := w.read(ctx, path)
	if err != nil {
		w.t.Fatalf("read %s: %v", path, err)
	}
	return s
}

// checkTree compares the live tree with what is known, through the API and on the disk, and then
// records what was uncertain.
func (w *world) checkTree(ctx context.Context) error {
	live := filepath.Join(w.data, "computers", string(w.cid), "workspace")
	have := map[string]string{}
	paths := slices.Collect(maps.Keys(w.tree.known))
	for _, e := range w.tree.either {
		paths = append(paths, slices.Collect(maps.Keys(e))...)
	}
	slices.Sort(paths)
	var errs []error
	for _, p := range slices.Compact(paths) {
		got, err := w.read(ctx, p)
		if err != nil {
			return fmt.Errorf("read %s: %w", p, err)
		}
		b, err := os.ReadFile(filepath.Join(live, filepath.FromSlash(p)))
		if errors.Is(err, os.ErrNotExist) {
			b, err = []byte(gone), nil
		}
		if err != nil || string(b) != got {
			errs = append(errs, fmt.Errorf("%s: the API says %.80q, the disk %.80q (%v)", p, got, b, err))
		}
		have[p] = got
	}
	fits := func(want map[string]values) (bad []error) {
		for p, got := range have {
			v, ok := want[p]
			if !ok {
				v = values{gone}
			}
			if !v.has(got) {
				bad = append(bad, fmt.Errorf("%s holds %.80q; want %.200q", p, got, v))
			}
		}
		return bad
	}
	worlds := w.tree.either
	if len(worlds) == 0 {
		worlds = []map[string]values{w.tree.known}
	}
	var bad []error
	ok := false
	for _, want := range worlds {
		b := fits(want)
		ok = ok || len(b) == 0
		bad = append(bad, b...)
	}
	if !ok {
		errs = append(errs, bad...)
	}
	w.tree.either = nil
	for p, got := range have {
		w.tree.known[p] = values{got}
	}
	return errors.Join(errs...)
}

// checkExplained makes a checkpoint and asks git what differs from the first one: only what the
// user, or a run, is known to have changed.
func (w *world) checkExplained(ctx context.Context) error {
	k, err := w.c.Checkpoint(ctx, "everything as it is")
	if err != nil {
		return err
	}
	w.witness.checkpoint(k.ID)
	gitDir := w.gitDir()
	out, err := git(gitDir, "diff-tree", "-r", "--no-renames", "--name-only", "-z", w.initial, k.ID).Output()
	if err != nil {
		return fmt.Errorf("git diff-tree: %w", err)
	}
	var errs []error
	for _, p := range strings.Split(strings.TrimSuffix(string(out), "\x00"), "\x00") {
		_, known := w.tree.known[p]
		document := strings.HasPrefix(p, "artifacts/") && strings.HasSuffix(p, ".md")
		emptied := path.Base(p) == ".empty.choir"                                                     // the history's marker of an empty folder
		large := strings.HasPrefix(p, largePath)                                                      // see checkLarge
		repository := strings.HasPrefix(p, "workspace/pushed") && strings.Contains(p, "/.git.choir/") // git's own files, beside the file that is known
		if p != "" && !known && !document && !emptied && !large && !repository {
			errs = append(errs, fmt.Errorf("nobody asked for %s", p))
		}
	}
	unkept := map[string]bool{}
	for _, u := range k.Unkept.Paths {
		unkept[u.Path] = true
	}
	for p, v := range w.tree.known {
		if len(v) != 1 {
			continue
		}
		if strings.Trim(v[0], "\x00") == "" && unkept[p] {
			continue // the power cut emptied it before any checkpoint contained it, which is reported
		}
		b, err := git(gitDir, "cat-file", "blob", k.ID+":"+p).Output()
		got := string(b)
		if err != nil {
			got = gone
		}
		if got != v[0] {
			errs = append(errs, fmt.Errorf("the checkpoint has %.80q at %s; live is %.80q", got, p, v[0]))
		}
	}
	return errors.Join(errs...)
}

func (w *world) gitDir() string {
	return filepath.Join(w.data, "computers", string(w.cid), "workspace", ".git")
}
