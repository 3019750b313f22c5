package local

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/sandbox"
	"choir.dev/choiros/internal/sandbox/local/hostfs"
	"choir.dev/choiros/internal/sandbox/local/untar"
)

// VolumesOptions say where volumes lie on this host.
type VolumesOptions struct {
	Dir     string      // of the computer: DATA/computers/{cid}
	Shared  string      // of what all computers share; empty: there is none
	Caches  []string    // with which names of a VolumeCache begin
	OnError func(error) // called when a removed volume can't be deleted
}

// Volumes keeps a computer's volumes as folders of its directory:
//
//	workspace/                    Live
//	snapshots/{name}/             Snapshot
//	boxes/{name}/{path}/upper     Written, with work/ beside it
//	boxes/.out-{name}/            Output
//	{name}/                       Cache
//
// SharedCache lies in a directory of its own.
type Volumes struct {
	opts   VolumesOptions
	root   place
	shared *common
	own    bool // shared is closed with these volumes
}

// place is a directory in which volumes are, and the remover of volumes in it.
type place struct {
	path     string
	removing string // the name in it to which removed volumes are moved
	told     func(error)
	dir      *hostfs.Dir
	remover  *hostfs.Remover // nil if this process may only read the directory
}

// take moves the volume at a name to the remover.
func (p *place) take(name string) error {
	if p.remover == nil {
		there, err := p.dir.Exists(name)
		if err == nil && there {
			err = fmt.Errorf("%s: %w", p.path, fs.ErrPermission)
		}
		return err
	}
	return gone(p.remover.Take(p.dir, name))
}

// open opens the directory, by a path on which no box can write, and continues interrupted
// removals.
func (p *place) open() (err error) {
	if p.dir, err = hostfs.Open(p.path); err != nil {
		return err
	}
	if p.remover, err = hostfs.NewRemover(p.dir, p.removing, p.told); err != nil {
		err = errors.Join(err, p.dir.Close())
	}
	return err
}

// common are the places of what all computers share: a folder for each first part of a
// name, opened on first use. Whoever runs choir may have put such a folder elsewhere and a
// link to it here, since no box writes here.
type common struct {
	path string
	told func(error)

	mu     sync.Mutex
	places map[string]*place
}

// place returns the place of names that begin with first; names of one part are in the
// directory itself.
func (s *common) place(first string) (*place, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p := s.places[first]; p != nil {
		return p, nil
	}
	p := &place{path: filepath.Join(s.path, first), removing: removingShared, told: s.told}
	if err := os.MkdirAll(p.path, 0o755); err != nil {
		return nil, err
	}
	if err := p.open(); errors.Is(err, fs.ErrPermission) || errors.Is(err, unix.EROFS) {
		if p.dir, err = hostfs.Open(p.path); err != nil {
			return nil, err
		}
		p.remover = nil
	} else if err != nil {
		return nil, err
	}
	if s.places == nil {
		s.places = map[string]*place{}
	}
	s.places[first] = p
	return p, nil
}

func (s *common) close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var errs []error
	for _, p := range s.places {
		errs = append(errs, p.close())
	}
	s.places = nil
	return errors.Join(errs...)
}

func (p *place) close() error {
	var err error
	if p.remover != nil {
		err = p.remover.Close()
	}
	return errors.Join(err, p.dir.Close())
}

// outputs is the prefix of the names of outputs among the boxes: no box or overlay has a
// name that begins so.
const outputs = ".out-"

// removing is the directory, in the computer's directory, for volumes that are being
// removed; an earlier version used the others.
const (
	removing        = "removing/boxes"
	removingShared  = ".removing"
	boxesDir        = "boxes"
	overlayUpper    = "upper"
	overlayWork     = "work"
	removingEarlier = "removing/overlays removing/builds workspace.new"
)

// OpenVolumes opens the volumes of a computer that has no living box, and removes Output
// volumes. Driver.Open does that for a computer that has boxes.
func OpenVolumes(o VolumesOptions) (*Volumes, error) {
	if o.Shared == "" {
		return openVolumes(o, nil)
	}
	all := &common{path: o.Shared, told: o.OnError}
	v, err := openVolumes(o, all)
	if err != nil {
		return nil, errors.Join(err, all.close())
	}
	v.own = true
	return v, nil
}

func openVolumes(o VolumesOptions, all *common) (*Volumes, error) {
	root := place{path: o.Dir, removing: removing, told: o.OnError}
	if err := root.open(); err != nil {
		return nil, err
	}
	v := &Volumes{opts: o, root: root, shared: all}
	if err := v.begin(); err != nil {
		return nil, errors.Join(err, v.Close())
	}
	return v, nil
}

// begin removes what an earlier process should not have left, and makes the folders in
// which the keeper works.
func (v *Volumes) begin() error {
	for _, name := range []string{boxesDir, "snapshots"} {
		mode := fs.FileMode(0o755)
		if name == boxesDir {
			mode = 0o700
		}
		if err := v.root.dir.Mkdir(name, mode); err != nil {
			return err
		}
	}
	entries, err := v.root.dir.ReadDir(boxesDir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), outputs) {
			err = errors.Join(err, v.root.take(path.Join(boxesDir, e.Name())))
		}
	}
	for name := range strings.FieldsSeq(removingEarlier) {
		err = errors.Join(err, v.root.take(name))
	}
	return err
}

// gone drops an error that says that something is not there.
func gone(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// Close interrupts the removals and closes the directories.
func (v *Volumes) Close() error {
	var err error
	if v.own {
		err = v.shared.close()
	}
	return errors.Join(err, v.root.close())
}

// at says in which place a volume is, and its path there. whole is the folder that contains
// all of it; of an overlay that contains the layers of its parts and overlayfs's work
// directories.
func (v *Volumes) at(vol sandbox.Volume) (in *place, whole, tree string, err error) {
	if err := vol.Validate(); err != nil {
		return nil, "", "", fault.New("", fault.Invalid, "", err)
	}
	plain := !strings.Contains(vol.Name, "/")
	in = &v.root
	switch vol.Kind {
	case sandbox.VolumeLive:
		whole = "workspace"
		tree = path.Join(whole, vol.Path)
		return in, tree, tree, nil
	case sandbox.VolumeSnapshot:
		whole = path.Join("snapshots", vol.Name)
	case sandbox.VolumeOverlay:
		if vol.Name == "" {
			if plain = vol.Path == ""; plain {
				return in, boxesDir, boxesDir, nil
			}
			break
		}
		whole = path.Join(boxesDir, vol.Name, vol.Path)
		if plain && vol.Name[0] != '.' {
			return in, whole, path.Join(whole, overlayUpper), nil
		}
		plain = false
	case sandbox.VolumeOutput:
		whole = path.Join(boxesDir, outputs+vol.Name)
	case sandbox.VolumeCache:
		first, _, _ := strings.Cut(vol.Name, "/")
		plain, whole = slices.Contains(v.opts.Caches, first), vol.Name
	case sandbox.VolumeShared:
		first, rest, deep := strings.Cut(vol.Name, "/")
		if !deep {
			first, rest = "", vol.Name
		}
		if plain = v.shared != nil && first != removingShared && !strings.HasPrefix(rest, removingShared); plain {
			if in, err = v.shared.place(first); err != nil {
				return nil, "", "", err
			}
			whole = rest
		}
	}
	if !plain {
		return nil, "", "", fault.New("", fault.Invalid, "", fmt.Errorf("%s is no volume of this computer", vol))
	}
	tree = path.Join(whole, vol.Path)
	if vol.Path != "" {
		whole = tree
	}
	return in, whole, tree, nil
}

// Path is where a volume's tree is on this host, for code that makes mounts and for tests.
// Boxes may be able to write on that path.
func (v *Volumes) Path(vol sandbox.Volume) (string, error) {
	in, _, tree, err := v.at(vol)
	if err != nil {
		return "", err
	}
	return filepath.Join(in.path, filepath.FromSlash(tree)), nil
}

// denied adds a hint about a link in the place of a folder.
func denied(vol sandbox.Volume, err error) error {
	if errors.Is(err, hostfs.ErrLink) {
		return fault.New("", fault.Denied, "Replace the link by what it points to.", fmt.Errorf("%s: %w", vol, err))
	}
	return err
}

// Make implements sandbox.Volumes.
func (v *Volumes) Make(_ context.Context, vol sandbox.Volume) error {
	const op = "sandbox/local.Make"
	in, whole, tree, err := v.at(vol)
	if err != nil {
		return fault.Wrap(op, err)
	}
	err = in.dir.Mkdir(tree, 0o755)
	if err == nil && vol.Kind == sandbox.VolumeOverlay && vol.Name != "" {
		err = in.dir.Mkdir(path.Join(whole, overlayWork), 0o755)
	}
	return fault.Wrap(op, denied(vol, err))
}

// Exists implements sandbox.Volumes.
func (v *Volumes) Exists(_ context.Context, vol sandbox.Volume) (bool, error) {
	const op = "sandbox/local.Exists"
	in, _, tree, err := v.at(vol)
	if err != nil {
		return false, fault.Wrap(op, err)
	}
	there, err := in.dir.Exists(tree)
	return there, fault.Wrap(op, denied(vol, err))
}

// listed returns the folder whose volumes are listed.
func (v *Volumes) listed(vol sandbox.Volume) (*place, string, error) {
	if vol.Kind == sandbox.VolumeShared && v.shared != nil && vol.Path == "" && vol.Validate() == nil && !strings.Contains(vol.Name, "/") {
		in, err := v.shared.place(vol.Name)
		return in, ".", err
	}
	in, dir, _, err := v.at(vol)
	return in, dir, err
}

// List implements sandbox.Volumes.
func (v *Volumes) List(_ context.Context, vol sandbox.Volume) ([]sandbox.VolumeInfo, error) {
	const op = "sandbox/local.List"
	dir, prefix := "", ""
	in := &v.root
	if vol.Kind == sandbox.VolumeOutput && vol == (sandbox.Volume{Kind: sandbox.VolumeOutput}) {
		dir, prefix = boxesDir, outputs
	} else {
		var err error
		if in, dir, err = v.listed(vol); err != nil {
			return nil, fault.Wrap(op, err)
		}
	}
	tree, err := in.dir.FS(dir)
	if err != nil {
		return nil, fault.Wrap(op, denied(vol, err))
	}
	entries, err := fs.ReadDir(tree, ".")
	if err != nil {
		return nil, fault.Wrap(op, err)
	}
	var out []sandbox.VolumeInfo
	for _, e := range entries {
		name, ok := strings.CutPrefix(e.Name(), prefix)
		if !ok || !e.IsDir() || prefix == "" && (strings.HasPrefix(name, outputs) || name == removingShared) {
			continue
		}
		info, err := e.Info()
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, fault.Wrap(op, err)
		}
		out = append(out, sandbox.VolumeInfo{Name: name, Used: info.ModTime()})
	}
	return out, nil
}

// Put implements sandbox.Volumes.
func (v *Volumes) Put(_ context.Context, vol sandbox.Volume, name string, content []byte, mode fs.FileMode) error {
	const op = "sandbox/local.Put"
	in, _, tree, err := v.at(vol)
	if err == nil && (!fs.ValidPath(name) || name == ".") {
		err = fault.New("", fault.Invalid, "", fmt.Errorf("%.200q is no name of a file", name))
	}
	if err != nil {
		return fault.Wrap(op, err)
	}
	return fault.Wrap(op, denied(vol, in.dir.WriteFile(path.Join(tree, name), content, mode)))
}

// Unpack implements sandbox.Volumes.
func (v *Volumes) Unpack(_ context.Context, vol sandbox.Volume, from io.Reader, most int64) error {
	const op = "sandbox/local.Unpack"
	in, _, tree, err := v.at(vol)
	if err == nil && vol.Kind != sandbox.VolumeOutput {
		err = fault.New("", fault.Invalid, "", fmt.Errorf("%s is not for the host to fill", vol))
	}
	if err != nil {
		return fault.Wrap(op, err)
	}
	dir, err := in.dir.Dir(tree)
	if err != nil {
		return fault.Wrap(op, denied(vol, err))
	}
	defer dir.Close()
	root, err := os.OpenRoot(fmt.Sprintf("/proc/self/fd/%d", dir.File().Fd()))
	if err != nil {
		return fault.Wrap(op, err)
	}
	return fault.Wrap(op, errors.Join(untar.Unpack(root, from, most), root.Close()))
}

// Files implements sandbox.Volumes.
func (v *Volumes) Files(_ context.Context, vol sandbox.Volume) (fs.FS, error) {
	const op = "sandbox/local.Files"
	switch vol.Kind {
	case sandbox.VolumeOutput, sandbox.VolumeCache, sandbox.VolumeShared:
	default:
		return nil, fault.New(op, fault.Invalid, "", fmt.Errorf("%s is for its keeper to read", vol))
	}
	in, _, tree, err := v.at(vol)
	if err != nil {
		return nil, fault.Wrap(op, err)
	}
	files, err := in.dir.FS(tree)
	return files, fault.Wrap(op, denied(vol, err))
}

// History implements sandbox.Volumes.
func (v *Volumes) History(context.Context) (fs.FS, error) {
	const op = "sandbox/local.History"
	vol := sandbox.Live(".git")
	in, _, tree, err := v.at(vol)
	if err != nil {
		return nil, fault.Wrap(op, err)
	}
	files, err := in.dir.Regular(tree)
	return files, fault.Wrap(op, denied(vol, err))
}

// Size implements sandbox.Volumes.
func (v *Volumes) Size(ctx context.Context, vol sandbox.Volume) (sandbox.Size, error) {
	const op = "sandbox/local.Size"
	in, whole, _, err := v.at(vol)
	if err != nil {
		return sandbox.Size{}, fault.Wrap(op, err)
	}
	dir, err := in.dir.Dir(whole)
	if err != nil {
		return sandbox.Size{}, fault.Wrap(op, denied(vol, err))
	}
	defer dir.Close()
	var tally hostfs.Tally
	err = tally.Add(ctx, dir)
	return sandbox.Size{Bytes: tally.Bytes, Files: tally.Inodes}, fault.Wrap(op, err)
}

// Touch implements sandbox.Volumes.
func (v *Volumes) Touch(_ context.Context, vol sandbox.Volume) error {
	const op = "sandbox/local.Touch"
	in, whole, _, err := v.at(vol)
	if err != nil {
		return fault.Wrap(op, err)
	}
	dir, err := in.dir.Dir(whole)
	if err != nil {
		return fault.Wrap(op, denied(vol, err))
	}
	defer dir.Close()
	now := unix.NsecToTimespec(time.Now().UnixNano())
	return fault.Wrap(op, unix.UtimesNanoAt(int(dir.File().Fd()), ".", []unix.Timespec{now, now}, 0))
}

// Keep implements sandbox.Volumes.
func (v *Volumes) Keep(ctx context.Context, from, to sandbox.Volume) error {
	const op = "sandbox/local.Keep"
	in, source, _, err := v.at(from)
	if err != nil {
		return fault.Wrap(op, err)
	}
	there, target, _, err := v.at(to)
	if err != nil {
		return fault.Wrap(op, err)
	}
	first := to == sandbox.Live("")
	if in.path != there.path || to.Kind == sandbox.VolumeLive && !first {
		return fault.New(op, fault.Invalid, "", fmt.Errorf("%s can't become %s", from, to))
	}
	if is, err := there.dir.Exists(target); first && (is || err != nil) {
		return fault.New(op, fault.Conflict, "", errors.Join(fmt.Errorf("%s can't become %s, which is there", from, to), denied(to, err)))
	}
	if err := in.dir.SyncFS(source); err != nil { // many small files, as a rule
		return fault.Wrap(op, denied(from, err))
	}
	if err := in.dir.Mkdir(path.Dir(target), 0o755); err != nil {
		return fault.Wrap(op, denied(to, err))
	}
	if !first {
		if err := v.Discard(ctx, to); err != nil {
			return fault.Wrap(op, err)
		}
	}
	if err := in.dir.Rename(source, target); err != nil {
		return fault.Wrap(op, denied(from, err))
	}
	return fault.Wrap(op, in.dir.Sync(path.Dir(target)))
}

// Discard implements sandbox.Volumes.
func (v *Volumes) Discard(_ context.Context, vol sandbox.Volume) error {
	const op = "sandbox/local.Discard"
	in, whole, _, err := v.at(vol)
	if err == nil && (vol.Kind == sandbox.VolumeLive || vol.Name == "") {
		err = fault.New("", fault.Invalid, "", fmt.Errorf("%s is not discarded", vol))
	}
	if err != nil {
		return fault.Wrap(op, err)
	}
	return fault.Wrap(op, in.take(whole))
}

// lock is the file that the holder of a volume has locked.
func (v *Volumes) lock(vol sandbox.Volume) (string, error) {
	in, whole, _, err := v.at(vol)
	switch {
	case err != nil:
		return "", err
	case vol == sandbox.Live(""):
		return filepath.Join(in.path, "keeper.lock"), nil
	case vol.Kind == sandbox.VolumeOverlay && vol.Name != "" && vol.Path == "":
		return filepath.Join(in.path, filepath.FromSlash(whole), "lock"), nil
	}
	return "", fault.New("", fault.Invalid, "", fmt.Errorf("%s has no holder", vol))
}

// mount is a sandbox.Mount with paths of this host.
type mount struct {
	Source, Target string
	Mode           sandbox.Mode
	Lower          []string
	Upper, Work    string
	SizeBytes      int64
	Optional       bool
}

// mounts resolves the volumes of a box's mounts to paths of this host.
func (v *Volumes) mounts(list []sandbox.Mount) ([]mount, error) {
	out := make([]mount, 0, len(list))
	for _, m := range list {
		made := mount{Target: m.Target, Mode: m.Mode, SizeBytes: m.SizeBytes, Optional: m.Optional}
		var err error
		for _, l := range m.Lower {
			at, lerr := v.Path(l)
			made.Lower, err = append(made.Lower, at), errors.Join(err, lerr)
		}
		switch m.Mode {
		case sandbox.ReadOnly, sandbox.ReadWrite:
			if len(m.Lower) == 0 {
				made.Source, err = v.Path(m.Source)
			}
		case sandbox.Overlay:
			if err == nil && !m.Upper.IsZero() {
				made.Upper, err = v.Path(m.Upper)
				made.Work = filepath.Join(filepath.Dir(made.Upper), overlayWork)
			}
		}
		if err != nil {
			return nil, fmt.Errorf("mount on %q: %w", m.Target, err)
		}
		out = append(out, made)
	}
	return out, nil
}
