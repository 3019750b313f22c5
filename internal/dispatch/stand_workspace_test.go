package dispatch_test

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"strings"
	"sync"
	"testing"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/dispatch/ports"
	"choir.dev/choiros/internal/document"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/state"
	"choir.dev/choiros/internal/view"
)

// folders stands in for the workspace.
type folders struct {
	t                                     *testing.T
	dir                                   string
	mu                                    sync.Mutex
	n                                     int
	race                                  func()       // called when a publish begins
	back                                  func()       // called when a publish is taken back
	drop                                  func()       // called when an overlay is dropped
	keep                                  func() error // called when a tree is to be kept
	swept                                 func(but []ports.TaskRef)
	shown, inverted, dropped, checkpoints int
	verified                              []contract.VerificationStatus
	keeps                                 []view.Kept       // the changes that taking back says it left as they are
	keptOf                                map[string]string // the bases of kept trees, by commit
	leaves                                []view.Kept       // what a task left that no tree can hold
	choose                                func() error      // called when what was chosen is to be merged
}

type overlay struct {
	ws   *folders
	dir  string
	base string
	look bool // whether the Director looks in it, which is no task's
}

func (o *overlay) Base() string { return o.base }

func (w *folders) live() string { return filepath.Join(w.dir, "live") }

// caught turns a panic of must into the error that caused it.
func caught(err *error) {
	switch p := recover().(type) {
	case nil:
	case error:
		*err = p
	default:
		panic(p)
	}
}

// spoil does what a bad disk does: the file at a path can't be read, and nothing can be created
// there any more. Permissions would not do, because they do not stop root.
func (w *folders) spoil(name string) {
	path := filepath.Join(w.dir, name)
	if err := os.Rename(path, path+" before"); err != nil && !errors.Is(err, fs.ErrNotExist) {
		panic(err)
	}
	must(0, os.WriteFile(path, nil, 0o644))
}

// heal undoes spoil.
func (w *folders) heal(name string) {
	path := filepath.Join(w.dir, name)
	must(0, os.Remove(path))
	must(0, os.Rename(path+" before", path))
}

func (w *folders) commit(from string) string {
	w.n++
	id := fmt.Sprintf("%040x", w.n)
	copyTree(from, filepath.Join(w.dir, "commits", id))
	return id
}

func (w *folders) Checkpoint(context.Context, ports.TaskRef, string) (_ string, err error) {
	defer caught(&err)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.checkpoints++
	return w.commit(w.live()), nil
}

func (w *folders) path(t ports.TaskRef) string {
	return filepath.Join(w.dir, "boxes", fmt.Sprintf("%s-%d", t.Task, t.Attempt))
}

// Start knows the commits that checkpoints and publishes made, and the trees that were kept.
func (w *folders) Start(_ context.Context, commit string) (ports.Start, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if base, ok := w.keptOf[commit]; ok {
		return ports.Start{Base: base, Kept: commit}, nil
	}
	if _, err := os.Stat(filepath.Join(w.dir, "commits", commit)); err != nil {
		return ports.Start{}, fault.New("start", fault.NotFound, "", err)
	}
	return ports.Start{Base: commit}, nil
}

func (w *folders) Begin(_ context.Context, t ports.TaskRef, from ports.Start) (_ ports.Overlay, err error) {
	defer caught(&err)
	o := &overlay{ws: w, dir: w.path(t), base: from.Base, look: t.Task == contract.DeriveID(t.Run, "look")}
	if o.look {
		o.dir = filepath.Join(w.dir, "looks", fmt.Sprint(t.Run, "-", t.Attempt))
	}
	copyTree(filepath.Join(w.dir, "commits", cmp.Or(from.Kept, from.Base)), o.dir)
	return o, nil
}

func (w *folders) Reopen(_ context.Context, t ports.TaskRef, from ports.Start) (ports.Overlay, error) {
	if _, err := os.Stat(w.path(t)); errors.Is(err, fs.ErrNotExist) {
		return nil, fault.New("reopen", fault.NotFound, "", err)
	} else if err != nil {
		return nil, err
	}
	return &overlay{ws: w, dir: w.path(t), base: from.Base}, nil
}

func (w *folders) Settle(context.Context, ports.Overlay) (live bool, err error) { return true, nil }

func (w *folders) PublishLive(_ context.Context, o ports.Overlay) (_ int, err error) {
	defer caught(&err)
	w.mu.Lock()
	defer w.mu.Unlock()
	ov := o.(*overlay)
	n := 0
	for p, c := range changes(filepath.Join(w.dir, "commits", ov.base), ov.dir) {
		if strings.HasPrefix(p, "choiros/") && c != contract.ChangeDeleted && !bytes.Equal(readFile(w.live(), p), readFile(ov.dir, p)) {
			put(w.live(), p, readFile(ov.dir, p))
			n++
		}
	}
	w.shown += n
	return n, nil
}

func (w *folders) Contains(_ context.Context, commits, paths, names []string) ([][]bool, error) {
	out := make([][]bool, len(commits))
	for i, commit := range commits {
		if commit == "" {
			return nil, errors.New("no commit is named")
		}
		for _, p := range paths {
			for at := range files(filepath.Join(w.dir, "commits", commit)) {
				if dir := filepath.Dir(at); slices.Contains(names, filepath.Base(at)) && (dir == "." || strings.HasPrefix(p, dir+"/")) {
					return nil, nil
				}
			}
			_, err := os.Stat(filepath.Join(w.dir, "commits", commit, p))
			out[i] = append(out[i], err == nil)
		}
	}
	return out, nil
}

func (w *folders) Changed(_ context.Context, from, to string) (out []contract.Change, err error) {
	defer caught(&err)
	for p, op := range changes(filepath.Join(w.dir, "commits", from), filepath.Join(w.dir, "commits", to)) {
		out = append(out, contract.Change{Path: p, Op: op})
	}
	return out, nil
}

// LiveDiff shows the live files whole.
func (w *folders) LiveDiff(_ context.Context, from string, paths []string, max int) (string, error) {
	if _, err := os.Stat(filepath.Join(w.dir, "commits", from)); err != nil {
		return "", err
	}
	var b strings.Builder
	for _, p := range paths {
		fmt.Fprintf(&b, "+++ %s\n%s", p, readFile(w.live(), p))
	}
	return b.String()[:min(b.Len(), max)], nil
}

func (w *folders) Merge(ctx context.Context, o ports.Overlay, took ports.Took) (_ ports.Merged, err error) {
	defer caught(&err)
	w.mu.Lock()
	defer w.mu.Unlock()
	work := took.Work
	switch {
	case work == "":
		work = w.commit(o.(*overlay).dir)
	case len(took.Only) > 0:
		if w.choose != nil {
			if err := w.choose(); err != nil {
				return ports.Merged{}, err
			}
		}
		if work, err = w.part(o.Base(), work, took.Only); err != nil {
			return ports.Merged{}, err
		}
	}
	return w.merge(o.Base(), work), nil
}

// part makes a commit with those of a tree's changes that are chosen, by their paths.
func (w *folders) part(base, work string, only []contract.Choice) (string, error) {
	from, is := filepath.Join(w.dir, "commits", base), filepath.Join(w.dir, "commits", work)
	into := filepath.Join(w.dir, "commits", fmt.Sprintf("part of %s", work))
	must(0, os.RemoveAll(into))
	copyTree(from, into)
	ops := changes(from, is)
	for _, c := range only {
		switch op, ok := ops[c.Path]; {
		case !ok:
			return "", fault.New("choose", fault.Conflict, "", fmt.Errorf("%q was not changed", c.Path))
		case op == contract.ChangeDeleted:
			must(0, os.Remove(filepath.Join(into, c.Path)))
		default:
			put(into, c.Path, readFile(is, c.Path))
		}
	}
	return w.commit(into), nil
}

func (w *folders) Choose(_ context.Context, _ ports.TaskRef, base, work string, only []contract.Choice) (err error) {
	defer caught(&err)
	w.mu.Lock()
	defer w.mu.Unlock()
	_, err = w.part(base, work, only)
	return err
}

func (w *folders) Hunks(_ context.Context, base, work string) (out []view.ReviewFile, more int, err error) {
	defer caught(&err)
	for p, op := range changes(filepath.Join(w.dir, "commits", base), filepath.Join(w.dir, "commits", work)) {
		out = append(out, view.ReviewFile{Path: p, Op: op})
	}
	sort.Slice(out, func(i, j int) bool { return out[i].Path < out[j].Path })
	return out, 0, nil
}

func (w *folders) merge(from, work string) ports.Merged {
	base, theirs := filepath.Join(w.dir, "commits", from), filepath.Join(w.dir, "commits", work)
	must(0, os.MkdirAll(filepath.Join(w.dir, "merges"), 0o755))
	merged := must(os.MkdirTemp(filepath.Join(w.dir, "merges"), "merge"))
	copyTree(w.live(), merged)
	m := ports.Merged{Work: work}
	for p, op := range changes(base, theirs) {
		m.Changes = append(m.Changes, contract.Change{Path: p, Op: op})
		if op == contract.ChangeDeleted {
			os.Remove(filepath.Join(merged, p))
		} else {
			put(merged, p, readFile(theirs, p))
		}
	}
	sort.Slice(m.Changes, func(i, j int) bool { return m.Changes[i].Path < m.Changes[j].Path })
	m.Commit = w.commit(merged)
	m.Tree = digest(merged)
	m.Left = w.leaves
	return m
}

func (w *folders) Publish(_ context.Context, o ports.Overlay, m ports.Merged, v contract.VerificationStatus, force bool) (_ ports.Published, err error) {
	defer caught(&err)
	if w.race != nil {
		w.race()
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	now := w.merge(o.Base(), m.Work)
	if now.Tree != m.Tree && !force {
		return ports.Published{}, fault.New("publish", fault.Conflict, "", errors.New("the live tree moved"))
	}
	os.RemoveAll(w.live())
	copyTree(filepath.Join(w.dir, "commits", now.Commit), w.live())
	w.verified = append(w.verified, v)
	return ports.Published{Checkpoint: now.Commit, Tree: now.Tree}, nil
}

func (w *folders) Invert(ctx context.Context, o ports.Overlay) (_ []view.Kept, err error) {
	defer caught(&err)
	if w.back != nil {
		w.back()
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.inverted++
	must(0, ctx.Err())
	ov := o.(*overlay)
	for p := range changes(filepath.Join(w.dir, "commits", ov.base), ov.dir) {
		if strings.HasPrefix(p, "choiros/") {
			put(w.live(), p, must(os.ReadFile(filepath.Join(w.dir, "commits", ov.base, p))))
		}
	}
	return w.keeps, nil
}

func (w *folders) Keep(_ context.Context, o ports.Overlay) (_ *contract.KeptTree, err error) {
	defer caught(&err)
	if w.keep != nil {
		if err := w.keep(); err != nil {
			return nil, err
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	ov := o.(*overlay)
	n := len(changes(filepath.Join(w.dir, "commits", ov.base), ov.dir))
	if n == 0 {
		return nil, nil
	}
	commit := w.commit(ov.dir)
	if w.keptOf == nil {
		w.keptOf = map[string]string{}
	}
	w.keptOf[commit] = ov.base
	return &contract.KeptTree{Commit: commit, Base: ov.base, Paths: n}, nil
}

// kept returns how many trees were kept.
func (w *folders) kept() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.keptOf)
}

func (w *folders) Drop(_ context.Context, o ports.Overlay) error {
	if o.(*overlay).look {
		return os.RemoveAll(o.(*overlay).dir)
	}
	if w.drop != nil {
		w.drop()
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.dropped++
	return os.RemoveAll(o.(*overlay).dir)
}

func (w *folders) Sweep(_ context.Context, but []ports.TaskRef) error {
	if w.swept != nil {
		w.swept(but)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	entries, err := os.ReadDir(filepath.Join(w.dir, "boxes"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	for _, e := range entries {
		path := filepath.Join(w.dir, "boxes", e.Name())
		if !slices.ContainsFunc(but, func(t ports.TaskRef) bool { return w.path(t) == path }) {
			err = errors.Join(err, os.RemoveAll(path))
		}
	}
	return err
}

func (w *folders) Git(_ context.Context, r ports.GitRequest) (ports.GitReply, error) {
	return ports.GitReply{Output: "did " + string(r.Step.Op), Checkpoint: fmt.Sprintf("%040x", 77)}, nil
}

func (w *folders) ReadFile(_ context.Context, p string, _ int) ([]byte, error) {
	return os.ReadFile(filepath.Join(w.live(), p))
}
func (w *folders) Folders(context.Context) ([]string, error) { return []string{"workspace/"}, nil }
func (w *folders) Artifact(_ context.Context, c, p string) (io.ReadCloser, error) {
	f, err := os.Open(filepath.Join(w.dir, "commits", c, p))
	if errors.Is(err, fs.ErrNotExist) {
		err = fault.New("artifact", fault.NotFound, "", err)
	}
	return f, err
}

func copyTree(from, to string) {
	must(0, os.MkdirAll(to, 0o755))
	must(0, filepath.WalkDir(from, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, _ := filepath.Rel(from, p)
		if d.IsDir() {
			return os.MkdirAll(filepath.Join(to, rel), 0o755)
		}
		return os.WriteFile(filepath.Join(to, rel), must(os.ReadFile(p)), 0o755)
	}))
}

func files(dir string) map[string]string {
	out := map[string]string{}
	must(0, filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			rel, _ := filepath.Rel(dir, p)
			out[rel] = string(must(os.ReadFile(p)))
		}
		return err
	}))
	return out
}

func digest(dir string) string {
	return fmt.Sprintf("%x", sha256.Sum256([]byte(fmt.Sprint(files(dir)))))
}

func changes(base, now string) map[string]contract.ChangeOp {
	a, b, out := files(base), files(now), map[string]contract.ChangeOp{}
	for p, c := range b {
		if old, ok := a[p]; !ok {
			out[p] = contract.ChangeAdded
		} else if old != c {
			out[p] = contract.ChangeModified
		}
	}
	for p := range a {
		if _, ok := b[p]; !ok {
			out[p] = contract.ChangeDeleted
		}
	}
	return out
}

func readFile(dir, p string) []byte { b, _ := os.ReadFile(filepath.Join(dir, p)); return b }

func put(dir, p string, b []byte) {
	must(0, os.MkdirAll(filepath.Dir(filepath.Join(dir, p)), 0o755))
	must(0, os.WriteFile(filepath.Join(dir, p), b, 0o755))
}

// keptDocuments stands in for the log in which documents are kept. A run's document is rendered as
// always.
type keptDocuments struct {
	cited func() []contract.Citation // what is on record, oldest first; nil: nothing
	mu    sync.Mutex
	docs  map[string]state.Revision
	// adopted are the documents that were made of files.
	adopted []string
}

func (d *keptDocuments) StartRun(_ context.Context, id, _, title, _ string, says document.Sections) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if _, ok := d.docs[id]; !ok {
		d.docs[id] = state.Revision{DocumentRevised: contract.DocumentRevised{Title: title, Body: document.RenderRun(title, says), Revision: 1}}
	}
	return nil
}

func (d *keptDocuments) Get(_ context.Context, id string) (state.Revision, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	doc, ok := d.docs[id]
	if !ok {
		return doc, fault.New("get", fault.NotFound, "", errors.New("no document"))
	}
	return doc, nil
}

func (d *keptDocuments) Adopt(_ context.Context, _, _, path, title, body string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.adopted = append(d.adopted, path+": "+title+"\n"+body)
	return nil
}

func (d *keptDocuments) Citations(_ context.Context, labels []string) (out []contract.Citation, err error) {
	if d.cited == nil {
		return nil, nil
	}
	for _, label := range labels {
		for _, c := range slices.Backward(d.cited()) {
			if c.Label == label {
				out = append(out, c)
				break
			}
		}
	}
	return out, nil
}

func (d *keptDocuments) UpdateRun(_ context.Context, id, _ string, says document.Sections) error {
	d.edit(id, func(body string) string { return document.UpdateRun(body, says) })
	return nil
}

// edit changes a document as a user would whom nobody disturbs.
func (d *keptDocuments) edit(id string, f func(string) string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	doc := d.docs[id]
	doc.Revision, doc.Body = doc.Revision+1, f(doc.Body)
	d.docs[id] = doc
}
