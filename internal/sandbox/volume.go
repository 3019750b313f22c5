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
	// VolumeSnapshot is a checkout, or a layer of one, that never changes. The
	// keeper makes them: without a name it is the place of them all.
	VolumeSnapshot VolumeKind = "snapshot"
	// VolumeOverlay holds what boxes wrote above lower layers. Its parts (Path)
	// are layers of their own. Without a name it is the place of them all, with
	// the layer of each part in a folder "upper": {name}/{path}/upper.
	VolumeOverlay VolumeKind = "overlay"
	// VolumeOutput is what a box makes for the host to keep.
	VolumeOutput VolumeKind = "output"
	// VolumeCache is kept by a computer for boxes to come. Its name begins with one
	// of ComputerSpec.Caches.
	VolumeCache VolumeKind = "cache"
	// VolumeShared is a cache of all computers of the machine. A box writes it only
	// while it is filled, under a name that nobody else mounts.
	VolumeShared VolumeKind = "shared"
)

// Volume names a tree that boxes see. Where it lies is the driver's to decide.
type Volume struct {
	Kind VolumeKind
	// Name tells volumes of a kind apart: parts of [A-Za-z0-9._-], separated by
	// slashes, of which none is "." or "..".
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

// IsZero says that it names none.
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

// Volumes are what the host does with a computer's volumes. Boxes write in them:
// nothing here follows a link or trusts a name that it finds. The host reads
// none of them but Output, Cache and Shared; the rest is the keeper's to read,
// but for what History shows.
//
// Errors: fault.Invalid for what is no volume, fault.Denied where a link is in
// the way, fs.ErrNotExist.
type Volumes interface {
	// Make makes a volume, empty and ready for boxes; one that is there stays as it is.
	Make(ctx context.Context, v Volume) error
	// Exists reports whether a volume, or a folder at its path, is there.
	Exists(ctx context.Context, v Volume) (bool, error)
	// List tells the volumes of a kind, by name; with a name those beneath it.
	List(ctx context.Context, v Volume) ([]VolumeInfo, error)
	// Put writes a file, and the folders above it, where no box writes (any more).
	Put(ctx context.Context, v Volume, name string, content []byte, mode fs.FileMode) error
	// Unpack writes a tree into an Output that was just made, from a tar stream that
	// comes from a box: nothing of it leads outside, nothing gets the name of the
	// history, and it is no more than most bytes (fault.DiskFull).
	Unpack(ctx context.Context, v Volume, from io.Reader, most int64) error
	// Files shows what is in an Output, Cache or Shared, in which nothing leads outside.
	Files(ctx context.Context, v Volume) (fs.FS, error)
	// History shows what the keeper has written of the history of Live, as it lies
	// on disk: files and folders in which nothing leads outside, and which nobody
	// waits for, whatever was put in their place. It is for what has to be known
	// before a box, the keeper's too, may be opened.
	History(ctx context.Context) (fs.FS, error)
	// Size measures a volume.
	Size(ctx context.Context, v Volume) (Size, error)
	// Touch notes that a volume is used now.
	Touch(ctx context.Context, v Volume) error
	// Keep makes what is at from, which no box writes any more, the whole of to:
	// at once, and on disk when it returns. What was at to is discarded; of Live
	// there must be nothing yet (fault.Conflict), for that is a computer's first tree.
	Keep(ctx context.Context, from, to Volume) error
	// Discard takes a volume away at once; it is removed later, whatever is in it.
	// One that is not there is discarded already.
	Discard(ctx context.Context, v Volume) error
}

// VolumeInfo is a volume among others. Used is when it was made, kept or touched.
type VolumeInfo struct {
	Name string
	Used time.Time
}

// Size is how much lies in a volume.
type Size struct{ Bytes, Files int64 }
