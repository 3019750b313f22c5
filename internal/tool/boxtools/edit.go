package boxtools

import (
	"context"
	"fmt"
	"io/fs"
	"strings"

	"choir.dev/choiros/internal/tool/boxtools/change"
)

type editArgs struct {
	Path string `json:"path"`
	change.Edit
}

func (b *Box) edit(_ context.Context, a editArgs) (Result, error) {
	return b.edits(a.Path, []change.Edit{a.Edit})
}

type multiEditArgs struct {
	Path  string        `json:"path"`
	Edits []change.Edit `json:"edits"`
}

func (b *Box) multiEdit(_ context.Context, a multiEditArgs) (Result, error) {
	return b.edits(a.Path, a.Edits)
}

// edits makes all edits of a file, each in the text that the one before left, or none.
func (b *Box) edits(name string, edits []change.Edit) (Result, error) {
	p, err := b.cleanForWrite(name)
	if err != nil {
		return Result{}, err
	}
	b.changing.Lock()
	defer b.changing.Unlock()
	text, mode, err := b.text(p)
	if err != nil {
		return Result{}, err
	}
	var said strings.Builder
	for i, e := range edits {
		which := ""
		if len(edits) > 1 {
			which = fmt.Sprintf("edit %d of %d, and so nothing was changed: ", i+1, len(edits))
		}
		next, done, err := e.Apply(text)
		if err != nil {
			return Result{}, refuse("%s: %s%v", p, which, err)
		}
		if len(next) > maxFile {
			return Result{}, refuse("%s: %sit would be %d bytes long; at most %d are handled", p, which, len(next), maxFile)
		}
		text = next
		fmt.Fprintf(&said, "edited %s: %d replaced, first at line %d", p, done.Count, done.Line)
		if done.Loose {
			said.WriteString(" (old was there but for white space; the new lines have the file's indentation)")
		}
		said.WriteByte('\n')
	}
	if err := b.put(p, []byte(text), mode); err != nil {
		return Result{}, err
	}
	return Result{OK: true, Output: said.String()}, nil
}

// text reads a file of text that a tool is about to change.
func (b *Box) text(p string) (string, fs.FileMode, error) {
	mode, fresh, err := b.target(p)
	if err != nil {
		return "", 0, err
	}
	if fresh {
		return "", 0, refuse("%s does not exist; use write to make it", p)
	}
	data, _, err := b.load(b.at(p))
	if err != nil {
		return "", 0, err
	}
	if binary(data) {
		return "", 0, refuse("%s is binary (%d bytes)", p, len(data))
	}
	_, err = b.unchanged(p, data)
	return string(data), mode, err
}
