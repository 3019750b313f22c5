package meanwhile

import (
	"encoding/json"
	"path"
	"strings"

	"choir.dev/choiros/internal/dispatch/summary"
	story "choir.dev/choiros/internal/run"
	"choir.dev/choiros/internal/tool/boxtools"
)

// maxLines bounds the lines of a search's output that are looked at.
const maxLines = 2000

// take remembers which paths the calls of a task have named, of those under way too, and which a search has shown. All of it is a hint: it
// only chooses among files that changed.
func (w *Watch) take(t *story.Task) {
	for _, c := range t.Calls {
		if w.taken[c.Call] {
			continue
		}
		switch c.Name {
		case "bash":
			var args struct {
				Command, Cwd string
			}
			if json.Unmarshal(c.Args, &args) == nil {
				w.command(args.Command, args.Cwd)
			}
		case "grep":
			ret, returned := t.Returns[c.Call]
			if !returned {
				continue
			}
			for i, line := range strings.Split(ret.Output, "\n") {
				if file, _, found := strings.Cut(line, ":"); found && i < maxLines {
					w.name("", file)
				}
			}
		case "read", boxtools.Write, "edit", "multi_edit", boxtools.Patch:
			for _, p := range summary.PathsOf(c.Args) {
				w.name("", p)
			}
		}
		w.taken[c.Call] = true
	}
}

// command takes the words of a command for paths, in the folder where it is by then as far as its own words tell.
func (w *Watch) command(command, cwd string) {
	words := strings.FieldsFunc(command, func(r rune) bool { return strings.ContainsRune(" \t\r\n\"'`;|&<>(){}=,:", r) })
	for i, word := range words {
		if i > 0 && words[i-1] == "cd" {
			cwd = path.Join(cwd, word)
			continue
		}
		w.name(cwd, word)
	}
}

// root is where a task's box has its tree.
const root = "/computer/"

func (w *Watch) name(in, p string) {
	if rest, ok := strings.CutPrefix(p, root); ok {
		in, p = "", rest
	}
	if len(w.named) < maxNamed && p != "" && !path.IsAbs(p) {
		w.named[path.Join(strings.TrimPrefix(in, root), p)] = true
	}
}
