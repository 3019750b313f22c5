package pushed

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"strings"

	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/workspace/keeper/gitstore"
	"choir.dev/choiros/internal/workspace/keeper/names"
	"choir.dev/choiros/internal/workspace/keeper/wire"
)

const folderMode = "40000"

// emptyTree is the id of a folder without entries. Git's own programs leave it out, and a
// checkpoint marks an empty folder, so whatever walks a history meets a file for each
// folder, and its bounds for files are bounds for folders too.
const emptyTree = "4b825dc642cb6eb9a060e54bf8d69288fbee4904"

// named is an entry of a tree that the keeper could have written.
type named struct {
	gitstore.TreeItem
	chunked bool // it is a large file's manifest
}

// kind is the kind of object that the entry names.
func (e named) kind() string {
	if e.Mode == folderMode {
		return treeKind
	}
	return blobKind
}

// entries reads a tree strictly: in git's order and form, each name once, written as
// checkpoints write it.
func entries(content []byte) ([]named, error) {
	var out []named
	plain := map[string]bool{}
	last := ""
	for len(content) > 0 {
		head, rest, ok := bytes.Cut(content, []byte{0})
		mode, name, spaced := strings.Cut(string(head), " ")
		if !ok || !spaced || len(rest) < 20 || name == "" {
			return nil, fault.New("", fault.Invalid, "", fmt.Errorf("a folder is no list of names"))
		}
		e := named{TreeItem: gitstore.TreeItem{Name: name, Mode: mode, ID: hex.EncodeToString(rest[:20])}}
		content = rest[20:]
		as, err := e.read()
		if err != nil {
			return nil, err
		}
		order := name
		if mode == folderMode {
			order += "/"
		}
		if order <= last || plain[as] {
			return nil, fault.New("", fault.Invalid, "", fmt.Errorf("a folder has %q twice, or not in git's order", wire.Short(name)))
		}
		last, plain[as] = order, true
		out = append(out, e)
	}
	return out, nil
}

// read checks an entry's mode and name, and returns the name that the file has in the live
// tree: "" for the marker of an empty folder.
func (e *named) read() (string, error) {
	kind := names.File
	switch e.Mode {
	case string(wire.ModeFile), string(wire.ModeExec):
	case string(wire.ModeSymlink):
		kind = names.Link
	case folderMode:
		if kind = names.Folder; e.ID == emptyTree {
			return "", fault.New("", fault.Invalid, "", fmt.Errorf("the folder %q is without anything", wire.Short(e.Name)))
		}
	case "160000":
		return "", fault.New("", fault.Denied, "Add its files, or bring the repository in with choir add.", fmt.Errorf("%q is a submodule", wire.Short(e.Name)))
	default:
		return "", fault.New("", fault.Invalid, "", fmt.Errorf("%q has the mode %.10q", wire.Short(e.Name), e.Mode))
	}
	if e.Name == names.EmptyMarker && e.Mode == string(wire.ModeFile) && e.ID == gitstore.EmptyBlob {
		return "", nil
	}
	as, back := names.Unescape(e.Name), ""
	if names.IsChunked(e.Name) && kind == names.File {
		as = names.Unescape(strings.TrimSuffix(e.Name, names.ChunkSuffix))
		e.chunked, back = true, names.EscapeChunked(as)
	} else {
		back = names.Escape(as, kind)
	}
	if back != e.Name || as == "" || as == "." || as == ".." || strings.ContainsAny(as, "/\x00") || len(as) > wire.MaxName {
		return "", fault.New("", fault.Denied, "Give it another name.", fmt.Errorf("%q is a name that no checkpoint has", wire.Short(e.Name)))
	}
	return as, nil
}
