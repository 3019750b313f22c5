// Package shown converts the keeper's and the workspace's answers (wire) to the forms that
// people and programs see (view, contract): paths that are not valid UTF-8, what a
// checkpoint left out, changes including those of nested repositories, files.
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

// maxUnkept limits how many paths of each kind an answer lists.
const maxUnkept = 50

// Unkept converts what a checkpoint left out to the API's form.
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

// WithRepositories returns changes together with those of nested repositories' own data:
// one for each repository, and one for each path in it that git runs or obeys. So a task
// that only commits in one changed something as well.
func WithRepositories(d wire.DiffReply) []wire.Change {
	out := slices.Clone(d.Changes)
	for _, repo := range d.Repositories {
		repo.Path += "/.git/"
		out = append(out, repo)
	}
	return append(out, d.Obeyed...)
}

// Changes converts changes to the form of the API and the log.
func Changes(in []wire.Change) []contract.Change {
	out := make([]contract.Change, 0, len(in))
	for _, ch := range in {
		out = append(out, contract.Change{Path: ch.Path.Shown(), PathBase64: base64Of(ch.Path), Op: contract.ChangeOp(ch.Op), Added: ch.Added, Removed: ch.Removed})
	}
	return out
}

// Kept converts paths that stayed as they are, with the reasons.
func Kept(list []wire.Conflict) []view.Kept {
	out := make([]view.Kept, len(list))
	for i, c := range list {
		out[i] = view.Kept{Path: strings.ToValidUTF8(string(c.Path), "\uFFFD"), Reason: c.Reason}
	}
	return out
}

// Paths lists the paths of changes.
func Paths(changes []wire.Change) []string {
	var out []string
	for _, ch := range changes {
		out = append(out, string(ch.Path))
	}
	return out
}

// File converts a file, folder or link to the form in which it is listed.
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

// base64Of encodes a path that is not valid UTF-8; it returns "" for other paths.
func base64Of(p wire.Path) string {
	if utf8.ValidString(string(p)) {
		return ""
	}
	return base64.StdEncoding.EncodeToString([]byte(p))
}

// Path decodes a path from its text and, if that is not the path itself, from its base64.
func Path(shown, raw string) wire.Path {
	if b, err := base64.StdEncoding.DecodeString(raw); raw != "" && err == nil {
		return wire.Path(b)
	}
	return wire.Path(shown)
}
