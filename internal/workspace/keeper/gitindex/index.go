package gitindex

import (
	"bytes"
	"context"
	"crypto/sha1"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"choir.dev/choiros/internal/workspace/keeper/disk"
	"choir.dev/choiros/internal/workspace/keeper/gitstore"
	"choir.dev/choiros/internal/workspace/keeper/names"
	"choir.dev/choiros/internal/workspace/keeper/wire"
)

// Index is .git/index and its base. One write happens at a time.
type Index struct {
	store *gitstore.Store
	tree  string           // the tree that the index describes, "" when unknown
	id    []byte           // of the base
	base  []string         // its names, sorted; nil when there is none of this process
	now   map[string]entry // what differs from the base; an entry without ID is removed
	large map[string]bool  // the large files, whose manifests the tree holds; with base
	as    string           // excludedAs of them, "" when they changed since
}

// entry is a path of the index.
type entry struct {
	mode, id string    // as in the tree
	stat     disk.Stat // in which it was captured
	hidden   bool      // it exists only in commits, under another name than in the tree
}

// Open is the index for a store's tree as the engine before this one left it. A damaged one
// is written anew.
func Open(s *gitstore.Store) *Index {
	x := &Index{store: s}
	tree, err := os.ReadFile(s.Work(treeFile))
	raw, rerr := os.ReadFile(s.File("index"))
	excluded, xerr := os.ReadFile(s.File(excludeFile))
	if err != nil || rerr != nil || xerr != nil || len(raw) < 2*sha1.Size {
		return x
	}
	id, found := strings.CutSuffix(string(tree), excludedAs(excluded))
	if sum := sha1.Sum(raw[:len(raw)-sha1.Size]); found && bytes.Equal(sum[:], raw[len(raw)-sha1.Size:]) {
		x.tree = id
	}
	return x
}

// treeFile holds the id of the tree that the index describes, and what excludeFile's content
// was then.
const treeFile = "index-tree"

// excludeFile names the large files, of which commits have the manifests alone, under
// another name: git would call them untracked.
const excludeFile = "info/exclude"

// excludedAs is what treeFile says of excludeFile's content.
func excludedAs(content []byte) string { return fmt.Sprintf(" %x", sha1.Sum(content)) }

// pattern is a line of excludeFile for one path. A line's end in a name can only be matched
// as any character.
var pattern = strings.NewReplacer(`\`, `\\`, "*", `\*`, "?", `\?`, "[", `\[`, " ", `\ `, "\t", "\\\t", "\n", "?", "\r", "?")

// exclude has git not call the large files untracked.
func (x *Index) exclude() error {
	if x.as != "" {
		return nil
	}
	var b bytes.Buffer
	for _, p := range slices.Sorted(maps.Keys(x.large)) {
		b.WriteString("/" + pattern.Replace(p) + "\n")
	}
	err := x.replace(excludeFile, b.Bytes())
	if err == nil {
		x.as = excludedAs(b.Bytes())
	}
	return err
}

// minDelta is how many paths may differ from the base, whatever its size.
const minDelta = 1000

// Bring makes the index describe a tree. seen is the state in which a path of the live tree
// was captured.
func (x *Index) Bring(ctx context.Context, tree string, seen func(p string) disk.Stat) error {
	if x.tree == tree {
		return nil
	}
	from := x.tree
	x.tree = ""
	if err := disk.RemoveIfThere(x.store.Work(treeFile)); err != nil {
		return err
	}
	if from == "" || x.base == nil || len(x.now) > max(minDelta, len(x.base)/4) {
		x.base, x.now, x.large, x.as, from = nil, nil, map[string]bool{}, "", ""
	}
	entries := map[string]entry{}
	err := x.store.Differ(ctx, from, tree, nil, func(name string, _, to gitstore.TreeItem) error {
		p, kind := names.UnescapePath(name)
		e := entry{mode: to.Mode, id: to.ID, hidden: kind != names.PathPlain || p != name}
		if kind == names.PathChunked {
			x.as = ""
			if delete(x.large, p); to.Mode != "" {
				x.large[p] = true
			}
		}
		if to.Mode != "" && !e.hidden {
			e.stat = seen(p)
		}
		entries[name] = e
		return nil
	})
	if err != nil {
		return err
	}
	if x.base == nil {
		err = x.writeBase(entries)
	} else {
		for name, e := range entries {
			x.now[name] = e
		}
		err = x.write()
	}
	if err == nil {
		err = x.exclude()
	}
	if err != nil {
		return err
	}
	x.tree = tree
	return os.WriteFile(x.store.Work(treeFile), []byte(tree+x.as), 0o644)
}

// writeBase writes a new base of all entries, and an index that adds nothing.
func (x *Index) writeBase(entries map[string]entry) error {
	names := make([]string, 0, len(entries))
	for name := range entries {
		names = append(names, name)
	}
	slices.Sort(names)
	raw := encode(names, entries, nil)
	x.base, x.id, x.now = names, raw[len(raw)-sha1.Size:], map[string]entry{}
	shared := "sharedindex." + hex.EncodeToString(x.id)
	old, err := filepath.Glob(x.store.File("sharedindex.*"))
	if err != nil {
		return err
	}
	if err := x.replace(shared, raw); err != nil {
		return err
	}
	if err := x.write(); err != nil {
		if !slices.Contains(old, x.store.File(shared)) {
			err = errors.Join(err, disk.RemoveIfThere(x.store.File(shared)))
		}
		return err
	}
	for _, file := range old {
		if filepath.Base(file) != shared {
			if err := disk.RemoveIfThere(file); err != nil {
				return err
			}
		}
	}
	return nil
}

// write writes the index itself: the new entries, and which of the base's entries they
// hide.
func (x *Index) write() error {
	var names []string
	gone := make([]uint64, (len(x.base)+63)/64)
	for name, e := range x.now {
		if at, ok := slices.BinarySearch(x.base, name); ok {
			gone[at/64] |= 1 << (at % 64)
		}
		if e.id != "" {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	var link bytes.Buffer
	link.Write(x.id)
	writeBitmap(&link, gone, len(x.base))
	writeBitmap(&link, nil, 0)
	return x.replace("index", encode(names, x.now, link.Bytes()))
}

// writeBitmap writes a bitmap in git's compressed format, as a single run of literal words.
func writeBitmap(b *bytes.Buffer, words []uint64, bits int) {
	put := func(v any) { _ = binary.Write(b, binary.BigEndian, v) } // never fails
	put(uint32(bits))
	put(uint32(1 + len(words)))
	put(uint64(len(words)) << 33)
	put(words)
	put(uint32(0)) // the position of the last run
}

// replace replaces a file of the repository atomically.
func (x *Index) replace(name string, content []byte) error {
	tmp := x.store.Work("tmp-git-index")
	err := os.WriteFile(tmp, content, 0o644)
	if err == nil {
		err = os.Rename(tmp, x.store.File(name))
	}
	if err != nil {
		return errors.Join(err, disk.RemoveIfThere(tmp))
	}
	return nil
}

// skipWorktree is git's flag of an entry that is not looked up in the tree.
const skipWorktree, extendedFlags = 0x4000, 0x4000

// encode writes entries as an index of version 3.
func encode(names []string, entries map[string]entry, link []byte) []byte {
	uid, gid := uint32(os.Getuid()), uint32(os.Getgid())
	out := binary.BigEndian.AppendUint32([]byte("DIRC"), 3)
	out = binary.BigEndian.AppendUint32(out, uint32(len(names)))
	for _, name := range names {
		e := entries[name]
		start := len(out)
		mode := uint32(0o100644)
		switch wire.Mode(e.mode) {
		case wire.ModeExec:
			mode = 0o100755
		case wire.ModeSymlink:
			mode = 0o120000
		}
		for _, v := range []uint32{
			uint32(e.stat.Ctime / 1e9), uint32(e.stat.Ctime % 1e9), uint32(e.stat.Mtime / 1e9), uint32(e.stat.Mtime % 1e9),
			0, uint32(e.stat.Ino), mode, uid, gid, uint32(e.stat.Size),
		} {
			out = binary.BigEndian.AppendUint32(out, v)
		}
		id, _ := hex.DecodeString(e.id) // it comes from a tree that was read
		out = append(out, id...)
		flags := uint16(min(len(name), 0xfff)) | extendedFlags
		out = binary.BigEndian.AppendUint16(out, flags)
		more := uint16(0)
		if e.hidden {
			more = skipWorktree
		}
		out = binary.BigEndian.AppendUint16(out, more)
		out = append(out, name...)
		out = append(out, strings.Repeat("\x00", 8-(len(out)-start)%8)...)
	}
	if link != nil {
		out = append(out, "link"...)
		out = binary.BigEndian.AppendUint32(out, uint32(len(link)))
		out = append(out, link...)
	}
	sum := sha1.Sum(out)
	return append(out, sum[:]...)
}
