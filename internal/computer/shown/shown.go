// Package shown says in the words of people and programs (view, contract) what the
// keeper and the workspace answer (wire): paths that are no text, what a checkpoint left
// out, changes with those of repositories inside the tree, files.
package shown

import (
	"encoding/base64"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/view"
	"choir.dev/choiros/internal/workspace/keeper/wire"
)

// maxUnkept bounds how many paths of each kind an answer lists.
const maxUnkept = 50

// Unkept says what a checkpoint left out as the API says it.
func Unkept(l wire.LeftOut) view.Unkept {
	out := view.Unkept{Files: l.Total, Ignored: l.Outside, Paths: []view.UnkeptPath{}}
	for _, s := range l.Left[:min(len(l.Left), maxUnkept)] {
		out.Paths = append(out.Paths, view.UnkeptPath{Path: contract.Clip(s.Path.Shown(), 1000), Reason: s.Reason})
	}
	for _, s := range l.Ignored[:min(len(l.Ignored), maxUnkept)] {
		out.Paths = append(out.Paths, view.UnkeptPath{Path: contract.Clip(s.Path.Shown(), 1000), Reason: s.Reason, Ignored: true})
	}
	return out
}

// WithRepositories are changes with those of nested repositories' own
// data: each as one, and by itself what git runs or obeys there. A task that only
// commits in one changed something as well.
func WithRepositories(d wire.DiffReply) []wire.Change {
	out := slices.Clone(d.Changes)
	for _, repo := range d.Repositories {
		repo.Path += "/.git/"
		out = append(out, repo)
	}
	return append(out, d.Obeyed...)
}

// Changes are what differs, as the API and the log say it.
func Changes(in []wire.Change) []contract.Change {
	out := make([]contract.Change, 0, len(in))
	for _, ch := range in {
		out = append(out, contract.Change{Path: ch.Path.Shown(), PathBase64: base64Of(ch.Path), Op: contract.ChangeOp(ch.Op), Added: ch.Added, Removed: ch.Removed})
	}
	return out
}

// Kept is what was left as it is, and why.
func Kept(list []wire.Conflict) []view.Kept {
	out := make([]view.Kept, len(list))
	for i, c := range list {
		out[i] = view.Kept{Path: strings.ToValidUTF8(string(c.Path), "\uFFFD"), Reason: c.Reason}
	}
	return out
}

// Paths are those of changes.
func Paths(changes []wire.Change) []string {
	var out []string
	for _, ch := range changes {
		out = append(out, string(ch.Path))
	}
	return out
}

// File is a file, folder or link as it is listed.
func File(f wire.FileInfo) view.File {
	out := view.File{ID: f.Path.Shown(), Kind: view.FileOther, Size: f.Size, Mode: view.ModeFile, Modified: time.UnixMilli(f.Time).UTC(), Target: f.Target.Shown(), Unkept: f.Unkept, Beneath: f.Beneath}
	switch f.Kind {
	case "file":
		out.Kind = view.FileRegular
		if f.Exec {
			out.Mode = view.ModeExecutable
		}
	case "dir":
		out.Kind, out.Mode = view.FileDir, "0755"
	case "symlink":
		out.Kind, out.Mode = view.FileSymlink, "0777"
	}
	return out
}

// base64Of is a path that is no text; "" where it is.
func base64Of(p wire.Path) string {
	if utf8.ValidString(string(p)) {
		return ""
	}
	return base64.StdEncoding.EncodeToString([]byte(p))
}

// Path is the path that is shown as text and, when that is not it, in base64.
func Path(shown, raw string) wire.Path {
	if b, err := base64.StdEncoding.DecodeString(raw); raw != "" && err == nil {
		return wire.Path(b)
	}
	return wire.Path(shown)
}
