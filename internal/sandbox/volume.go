package sandbox

import (
	"context"
	"fmt"
	"io"
	"io/fs"
	"path"
	"strings"
	"time"

	"choir.dev/choiros/internal/lazy"
)

// VolumeKind says what a volume is for, and so who may write it and for how long
// it is kept.
type VolumeKind string

// Kinds of volumes. Output lasts until it is kept or discarded, at most until the
// computer is opened again; the others until they are discarded.
const (
	// VolumeLive holds the computer's files and their history. There is one, which
	// has no name; its keeper alone writes the history.
	VolumeLive VolumeKind = "live"
	// VolumeSnapshot is a checkout, or a layer of one, that never changes. The keeper makes
	// them. Without a name it is the folder of them all.
	VolumeSnapshot VolumeKind = "snapshot"
	// VolumeOverlay holds what boxes wrote above lower layers. Its parts (Path) are layers
	// of their own. Without a name it is the folder of them all, with the layer of each
	// part in a folder "upper": {name}/{path}/upper.
	VolumeOverlay VolumeKind = "overlay"
	// VolumeOutput is what a box makes for the host to keep.
	VolumeOutput VolumeKind = "output"
	// VolumeCache is kept by a computer for later boxes. Its name begins with one of
	// ComputerSpec.Caches.
	VolumeCache VolumeKind = "cache"
	// VolumeShared is a cache of all computers of the machine. A box writes it only
	// while it is filled, under a name that nobody else mounts.
	VolumeShared VolumeKind = "shared"
)

// Volume names a tree that boxes see. The driver decides where it is stored.
type Volume struct {
	Kind VolumeKind
	// Name distinguishes volumes of a kind: parts of [A-Za-z0-9._-], separated by slashes,
	// of which none is "." or "..".
	Name string
	// Path is a folder or file beneath it; empty: all of it.
	Path string
}

// Live is the computer's files, or what is at a path in them.
func Live(at string) Volume { return Volume{Kind: VolumeLive, Path: at} }

// Snapshot is a checkout or a layer of one; of all of them without a name.
func Snapshot(name string) Volume { return Volume{Kind: VolumeSnapshot, Name: name} }

// Written is what boxes wrote above lower layers; of all of them without a name.
func Written(name string) Volume { return Volume{Kind: VolumeOverlay, Name: name} }

// Output is a place for what a box makes.
func Output(name string) Volume { return Volume{Kind: VolumeOutput, Name: name} }

// Cache is what a computer keeps under a name.
func Cache(name string) Volume { return Volume{Kind: VolumeCache, Name: name} }

// SharedCache is what all computers of the machine share under a name.
func SharedCache(name string) Volume { return Volume{Kind: VolumeShared, Name: name} }

// At is what lies at a path of the volume.
func (v Volume) At(at string) Volume {
	v.Path = path.Join(v.Path, at)
	return v
}

// IsZero reports whether v names no volume.
func (v Volume) IsZero() bool { return v == Volume{} }

// String is for people who read logs.
func (v Volume) String() string {
	return strings.TrimSuffix(path.Join(string(v.Kind)+":"+v.Name, v.Path), ":")
}

var volumePart = lazy.Regexp(`^[A-Za-z0-9._-]{1,128}$`)

// Validate says what is wrong with a volume's name or path.
func (v Volume) Validate() error {
	switch v.Kind {
	case VolumeLive:
		if v.Name != "" {
			return fmt.Errorf("%s: the computer's files have no name", v)
		}
	case VolumeSnapshot, VolumeOverlay:
	case VolumeOutput, VolumeCache, VolumeShared:
		if v.Name == "" {
			return fmt.Errorf("a volume of kind %s needs a name", v.Kind)
		}
	default:
		return fmt.Errorf("%.40q is no kind of volume", v.Kind)
	}
	if v.Name != "" {
		for part := range strings.SplitSeq(v.Name, "/") {
			if !volumePart().MatchString(part) || part == "." || part == ".." {
				return fmt.Errorf("%.200q is no name of a volume", v.Name)
			}
		}
	}
	if v.Path != "" && (!fs.ValidPath(v.Path) || v.Path == "." || strings.IndexByte(v.Path, 0) >= 0) {
		return fmt.Errorf("%.200q is no path in a volume", v.Path)
	}
	return nil
}

// Volumes are the operations of the host on a computer's volumes. Boxes write in them, so
// nothing here follows a link or trusts a name that it finds. The host reads only Output,
// Cache and Shared, and what History shows; the rest is for the keeper to read.
//
// Errors: fault.Invalid for a volume that can't exist, fault.Denied if a link is in the
// way, fs.ErrNotExist.
type Volumes interface {
	// Make makes a volume, empty and ready for boxes; an existing one stays as it is.
	Make(ctx context.Context, v Volume) error
	// Exists reports whether a volume, or a folder at its path, is there.
	Exists(ctx context.Context, v Volume) (bool, error)
	// List lists the volumes of a kind, by name; with a name those beneath it.
	List(ctx context.Context, v Volume) ([]VolumeInfo, error)
	// Put writes a file, and the folders above it, into a volume in which no box writes
	// (any more).
	Put(ctx context.Context, v Volume, name string, content []byte, mode fs.FileMode) error
	// Unpack writes a tree into an Output that was just made, from a tar stream that comes
	// from a box. No entry leads outside or has the name of the history (.git), and it has
	// at most most bytes (fault.DiskFull).
	Unpack(ctx context.Context, v Volume, from io.Reader, most int64) error
	// Files shows the content of an Output, Cache or Shared; no name in it leads outside.
	Files(ctx context.Context, v Volume) (fs.FS, error)
	// History shows what the keeper has written of the history of Live, as it is on disk:
	// only files and folders, none of which leads outside or blocks the reader, whatever a
	// box put in their place. It is for what must be known before any box, the keeper's
	// included, may be opened.
	History(ctx context.Context) (fs.FS, error)
	// Size measures a volume.
	Size(ctx context.Context, v Volume) (Size, error)
	// Touch records that a volume is used now.
	Touch(ctx context.Context, v Volume) error
	// Keep makes the tree at from, which no box writes any more, the whole of to:
	// atomically, and on disk when it returns. What was at to is discarded; Live must not
	// exist yet (fault.Conflict), since this is for a computer's first tree.
	Keep(ctx context.Context, from, to Volume) error
	// Discard takes a volume away at once; its content is removed later. If it does not
	// exist, that is no error.
	Discard(ctx context.Context, v Volume) error
}

// VolumeInfo describes a volume in a list. Used is when it was made, kept or touched.
type VolumeInfo struct {
	Name string
	Used time.Time
}

// Size is the size of a volume.
type Size struct{ Bytes, Files int64 }
