package boxtools

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"choir.dev/choiros/internal/tool/boxtools/change"
)

type patchArgs struct {
	Patch string `json:"patch"`
}

// step is one file as a patch leaves it.
type step struct {
	path   string
	before *content // nil: it is not there
	after  *content // nil: it is removed
}

type content struct {
	data []byte
	mode fs.FileMode
}

// applyPatch prepares all files before it changes the first, and changes those back that it has changed
// if another one can't be written.
func (b *Box) applyPatch(_ context.Context, a patchArgs) (Result, error) {
	files, err := change.Parse(a.Patch)
	if err != nil {
		return Result{}, refuse("the patch does not apply: %v", err)
	}
	b.changing.Lock()
	defer b.changing.Unlock()
	var steps []step
	touched := map[string]bool{}
	total := 0
	var said strings.Builder
	for _, f := range files {
		made, err := b.prepare(f)
		if err != nil {
			return Result{}, explained(f.Path, err)
		}
		for _, s := range made {
			if touched[s.path] {
				return Result{}, refuse("the patch changes %s twice; put all changes of a file together", s.path)
			}
			touched[s.path] = true
			for _, c := range []*content{s.before, s.after} {
				if c != nil {
					total += len(c.data)
				}
			}
		}
		if total > 8*maxFile {
			return Result{}, refuse("the patch changes files of more than %d bytes; make several", 8*maxFile)
		}
		steps = append(steps, made...)
		fmt.Fprintf(&said, "%s\n", told(f, made))
	}
	for i, s := range steps {
		if err := b.carry(s.path, s.after); err != nil {
			for _, s := range steps[:i] {
				err = errors.Join(err, b.carry(s.path, s.before))
			}
			return Result{}, err
		}
	}
	return Result{OK: true, Output: said.String()}, nil
}

func explained(p string, err error) error {
	var no refusal
	if errors.As(err, &no) {
		return refuse("the patch does not apply, and nothing was changed: %s", string(no))
	}
	var pe *fs.PathError
	if errors.As(err, &pe) {
		return refuse("the patch does not apply, and nothing was changed: %s: %v", p, pe.Err)
	}
	return err
}

// prepare reads what a patch changes, and says what it becomes.
func (b *Box) prepare(f change.Change) ([]step, error) {
	p, err := b.cleanForWrite(f.Path)
	if err != nil {
		return nil, err
	}
	if f.Kind == change.Add {
		text, err := f.Apply("")
		if err != nil {
			return nil, refuse("%s: %v", p, err)
		}
		mode, err := b.absent(p)
		return []step{{p, nil, &content{[]byte(text), executable(mode, f.Executable)}}}, err
	}
	text, mode, err := b.text(p)
	if err != nil {
		return nil, err
	}
	before := &content{[]byte(text), mode}
	after, err := f.Apply(text)
	switch {
	case err != nil:
		return nil, refuse("%s: %v", p, err)
	case len(after) > maxFile:
		return nil, refuse("%s would be %d bytes long; at most %d are handled", p, len(after), maxFile)
	case f.Kind == change.Delete && len(f.Hunks) > 0 && after != "":
		return nil, refuse("%s has lines that the patch does not remove", p)
	case f.Kind == change.Delete:
		return []step{{p, before, nil}}, nil
	}
	made := &content{[]byte(after), executable(mode, f.Executable)}
	if f.To == "" {
		return []step{{p, before, made}}, nil
	}
	to, err := b.cleanForWrite(f.To)
	if err != nil {
		return nil, err
	}
	_, err = b.absent(to)
	return []step{{to, nil, made}, {p, before, nil}}, err
}

// absent refuses a path at which there is something.
func (b *Box) absent(p string) (fs.FileMode, error) {
	mode, fresh, err := b.target(p)
	if err == nil && !fresh {
		err = refuse("%s exists", p)
	}
	return mode, err
}

func executable(mode fs.FileMode, x *bool) fs.FileMode {
	switch {
	case x == nil:
		return mode
	case *x:
		return mode | 0o111
	}
	return mode &^ 0o111
}

// carry makes a file what it is to be.
func (b *Box) carry(p string, c *content) error {
	if c == nil {
		b.forget(p)
		return b.root.Remove(p)
	}
	return b.put(p, c.data, c.mode)
}

func told(f change.Change, made []step) string {
	switch {
	case f.Kind == change.Add:
		return fmt.Sprintf("created %s (%d bytes)", made[0].path, len(made[0].after.data))
	case f.Kind == change.Delete:
		return "removed " + made[0].path
	case f.To != "":
		return fmt.Sprintf("moved %s to %s, %d hunks", made[1].path, made[0].path, len(f.Hunks))
	}
	return fmt.Sprintf("patched %s: %d hunks", made[0].path, len(f.Hunks))
}
