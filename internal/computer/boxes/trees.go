package boxes

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/defence"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/sandbox"
)

const (
	// DependenciesDir is where a computer keeps what it has installed for its checks and,
	// among the caches, where the machine keeps what is installed for all.
	DependenciesDir = "dependencies"
	entryFile       = "entry.json"
	filling         = ".fill-" // prefix of the name of a tree that is not complete yet

	maxTrees = 200 // however small they are
)

// trees keeps what was installed in one place, one tree per key. A tree is filled under a
// temporary name of its own, and renamed to its key when all of it is on disk; from then on
// nobody writes it.
type trees struct {
	in   sandbox.Volume // a Cache or a SharedCache
	most int64          // bytes of all trees together
	// plain refuses a tree with links that lead out of it.
	plain bool

	bounding sync.Mutex // held while trees beyond the bound are removed
	keeping  sync.Mutex // held while a tree gets its key
	swept    sync.Once

	mu       sync.Mutex
	uses     map[string]int
	verified map[string]bool // keys of trees that this process has checked
	failed   map[string]failedInstall
	flights  map[string]*flight
}

// failedInstall is a failure that is returned for a while instead of trying again.
type failedInstall struct {
	err   error
	until time.Time
}

// installed describes a complete tree. The description is a file beside the tree's folders,
// which no box sees.
type installed struct {
	Packages int              `json:"packages"`
	Bytes    int64            `json:"bytes"`
	Hosts    []string         `json:"hosts,omitempty"`
	Note     string           `json:"note,omitempty"`
	Mounts   []installedMount `json:"mounts"`
	// Seal is the hash of all that is in the tree.
	Seal string `json:"seal"`
}

// installedMount is a folder of the tree and where checks see it.
type installedMount struct {
	Source string `json:"source"`
	Target string `json:"target"`
}

func newTrees(in sandbox.Volume, most int64, plain bool) *trees {
	return &trees{in: in, most: most, plain: plain, uses: map[string]int{}, verified: map[string]bool{}, failed: map[string]failedInstall{}, flights: map[string]*flight{}}
}

// tree is the volume for a key.
func (t *trees) tree(key string) sandbox.Volume {
	v := t.in
	v.Name += "/" + key
	return v
}

// sweep removes what an earlier process began and did not complete. It is done once: this
// process' own incomplete trees must stay.
func (t *trees) sweep(ctx context.Context, v sandbox.Volumes) (err error) {
	t.swept.Do(func() {
		var list []sandbox.VolumeInfo
		if list, err = v.List(ctx, t.in); errors.Is(err, fs.ErrNotExist) {
			err = nil
		}
		for _, e := range list {
			if strings.HasPrefix(e.Name, filling) {
				err = errors.Join(err, v.Discard(ctx, t.tree(e.Name)))
			}
		}
	})
	return err
}

// damagedTreeError is the error of a tree that is damaged. Any other error while it is read says
// nothing about the tree.
type damagedTreeError struct{ error }

// judged tells errors of reading an existing tree apart. The tree is damaged if a part
// of it is gone, is of another kind, holds what nobody may be given, or can't be read
// from the disk; what a process lacks, such as descriptors, is no damage.
func judged(err error) error {
	if err == nil || !slices.ContainsFunc([]error{fs.ErrNotExist, unix.ENOTDIR, unix.EISDIR, unix.ELOOP, unix.EIO, fs.ErrPermission}, func(of error) bool { return errors.Is(err, of) }) && !fault.Is(err, fault.Denied) {
		return err
	}
	return damagedTreeError{err}
}

// entry reads the description under a key. The error is fs.ErrNotExist if there is none,
// and a damagedTreeError if the tree is damaged.
func (t *trees) entry(ctx context.Context, v sandbox.Volumes, key string) (got installed, err error) {
	files, err := v.Files(ctx, t.tree(key))
	if err != nil {
		return got, err
	}
	b, err := fs.ReadFile(files, entryFile)
	if err != nil {
		return got, judged(fmt.Errorf("%s: %w", entryFile, err))
	}
	if err := json.Unmarshal(b, &got); err != nil {
		return got, damagedTreeError{fmt.Errorf("%s: %w", entryFile, err)}
	}
	for _, m := range got.Mounts {
		there, err := v.Exists(ctx, t.tree(key).At(m.Source))
		if err != nil {
			return got, judged(err)
		}
		if !there {
			return got, damagedTreeError{fmt.Errorf("%s is missing", m.Source)}
		}
	}
	return got, nil
}

// whole reads the description under a key and compares the tree with it.
func (t *trees) whole(ctx context.Context, v sandbox.Volumes, key string) (installed, error) {
	got, err := t.entry(ctx, v, key)
	if err != nil || defence.Off(defence.SharedWhole) {
		return got, err
	}
	sum, err := t.seal(ctx, v, t.tree(key))
	if err == nil && sum != got.Seal {
		return got, damagedTreeError{errors.New("it is not what was kept")}
	}
	return got, judged(err)
}

func (t *trees) seal(ctx context.Context, v sandbox.Volumes, tree sandbox.Volume) (string, error) {
	files, err := v.Files(ctx, tree)
	if err != nil {
		return "", err
	}
	return seal(ctx, files, t.plain && !defence.Off(defence.SharedPlain))
}

// hold returns a tree that this process has checked, which stays until it is released;
// fs.ErrNotExist if there is none.
func (t *trees) hold(ctx context.Context, v sandbox.Volumes, key string) (installed, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.verified[key] {
		return installed{}, fs.ErrNotExist
	}
	got, err := t.entry(ctx, v, key)
	if err == nil {
		err = v.Touch(ctx, t.tree(key)) // those not used for longest are removed first
	}
	if err != nil {
		delete(t.verified, key)
		return got, err
	}
	t.uses[key]++
	return got, nil
}

func (t *trees) release(key string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.uses[key]--; t.uses[key] <= 0 {
		delete(t.uses, key)
	}
}

// recentFailure returns the recent failure of a key, if there is one.
func (t *trees) recentFailure(key string) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	maps.DeleteFunc(t.failed, func(_ string, f failedInstall) bool { return time.Now().After(f.until) })
	return t.failed[key].err
}

// there reports whether a tree is kept under a key.
func (t *trees) there(ctx context.Context, v sandbox.Volumes, key string) bool {
	there, err := v.Exists(ctx, t.tree(key))
	return err == nil && there
}

// bound removes the trees that were not used for longest until the rest is within most
// bytes. Trees in use stay.
func (t *trees) bound(ctx context.Context, v sandbox.Volumes) error {
	t.bounding.Lock()
	defer t.bounding.Unlock()
	list, err := v.List(ctx, t.in)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	type kept struct {
		key   string
		bytes int64
		used  time.Time
	}
	var all []kept
	var sum int64
	for _, e := range list {
		if strings.HasPrefix(e.Name, filling) || ctx.Err() != nil {
			continue
		}
		k := kept{key: e.Name, used: e.Used}
		if files, err := v.Files(ctx, t.tree(k.key)); err == nil {
			var got installed
			if b, err := fs.ReadFile(files, entryFile); err == nil && json.Unmarshal(b, &got) == nil {
				k.bytes = got.Bytes
			}
		}
		sum, all = sum+k.bytes, append(all, k)
	}
	left := len(all)
	slices.SortFunc(all, func(a, b kept) int { return cmp.Or(a.used.Compare(b.used), strings.Compare(a.key, b.key)) })
	for _, k := range all {
		if sum <= t.most && left <= maxTrees {
			break
		}
		gone, err := t.drop(ctx, v, k.key, nil)
		if err != nil {
			return err
		}
		if gone {
			sum, left = sum-k.bytes, left-1
		}
	}
	return nil
}

// drop removes a tree unless somebody uses it, or is about to. A caller that installs it
// itself names its own flight.
func (t *trees) drop(ctx context.Context, v sandbox.Volumes, key string, own *flight) (bool, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if f := t.flights[key]; t.uses[key] > 0 || f != nil && f != own {
		return false, nil
	}
	delete(t.verified, key)
	return true, v.Discard(ctx, t.tree(key))
}

// keep renames a tree to its key, unless another try came first that nobody waited for any
// more: that one may be in use.
func (t *trees) keep(ctx context.Context, v sandbox.Volumes, tmp sandbox.Volume, key string, got installed) (installed, error) {
	t.keeping.Lock()
	defer t.keeping.Unlock()
	if t.there(ctx, v, key) {
		there, err := t.entry(ctx, v, key)
		return there, errors.Join(err, v.Discard(ctx, tmp))
	}
	return got, v.Keep(ctx, tmp, t.tree(key))
}

// fill has a tree made under a temporary name and keeps it when it is complete. Nothing is
// left of an incomplete one.
func (t *trees) fill(ctx context.Context, v sandbox.Volumes, log *slog.Logger, key string, make filler) (got installed, err error) {
	if err := t.bound(ctx, v); err != nil {
		return got, err
	}
	tmp := t.tree(filling + key + "-" + contract.Nonce())
	defer func() {
		if err != nil {
			err = errors.Join(err, v.Discard(context.WithoutCancel(ctx), tmp))
		}
	}()
	if got, err = make(ctx, tmp); err != nil {
		return got, err
	}
	// No box writes there any more.
	size, err := v.Size(ctx, tmp)
	if err != nil {
		return got, err
	}
	got.Bytes = size.Bytes
	if got.Seal, err = t.seal(ctx, v, tmp); err != nil {
		return got, err
	}
	b, err := json.Marshal(got)
	if err != nil {
		return got, err
	}
	if err := v.Put(ctx, tmp, entryFile, b, 0o600); err != nil {
		return got, err
	}
	if got, err = t.keep(ctx, v, tmp, key, got); err != nil {
		return got, err
	}
	if err := t.bound(ctx, v); err != nil {
		log.Warn("installed dependencies could not be bounded", "error", err)
	}
	return got, nil
}

// Shared counts what is installed for all computers, in the directory of the caches.
func Shared(caches fs.FS) (n int, bytes int64, err error) {
	list, err := fs.ReadDir(caches, DependenciesDir)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, 0, nil
	}
	for _, e := range list {
		var got installed
		b, err := fs.ReadFile(caches, DependenciesDir+"/"+e.Name()+"/"+entryFile)
		if err == nil && json.Unmarshal(b, &got) == nil && !strings.HasPrefix(e.Name(), filling) {
			n, bytes = n+1, bytes+got.Bytes
		}
	}
	return n, bytes, err
}
