package keeper

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"choir.dev/choiros/internal/defence"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/process"
	"choir.dev/choiros/internal/workspace/keeper/wire"
	"golang.org/x/sys/unix"
)

// Options say where an engine works and within what bounds.
type Options struct {
	Root      string // the live tree; .git is made in it
	Snapshots string // immutable checkouts, one directory per commit
	Uppers    string // what tasks wrote: {task's path}/…, read-only
	Limits    wire.Limits
	Git       string           // git program; "git" when empty
	Now       func() time.Time // time.Now when nil
	Logger    *slog.Logger     // discards when nil
	Crash     func(point string)
}

const (
	branch   = "refs/heads/main"
	workDir  = "choir" // the engine's own files, under .git
	maxSkips = 200     // how many skipped paths are listed
)

// repoConfig is the repository's own configuration, for stock tools that open
// it; the engine itself is governed by gitConfig.
const repoConfig = `[core]
	repositoryformatversion = 0
	filemode = true
	bare = false
	fsmonitor = false
	symlinks = true
	quotePath = false
	protectNTFS = false
	fsync = all
[gc]
	auto = 0
[maintenance]
	auto = false
[receive]
	denyCurrentBranch = refuse
`

// infoAttributes outrank every .gitattributes of the tree: bytes stay bytes
// for stock tools too. (The engine reads no attributes.)
const infoAttributes = "* -text -eol -ident -filter -working-tree-encoding -export-subst\n"

// Engine works on one tree. Its methods may be called concurrently; those that
// change the tree or its history take turns.
type Engine struct {
	opts   Options
	gitDir string
	rootFD int
	lock   *os.File

	end    ending // how the engine before this one ended, until Heal has looked
	parted bool   // it said goodbye

	mu      sync.Mutex // one change at a time; guards what follows
	head    string     // newest commit, "" before the first
	tree    string     // its tree
	tracked *index
	lumps   map[string]*lump // directories that were too much, as they were seen last
	looks   uint64           // how many looks at the tree there were
	known   map[string]bool  // trees that exist
	damaged *damagedHead     // the newest commit can't be read

	slowIgnores map[slowIgnore]bool
	batch       *[]pendingObject
	doubted     map[string]doubt // new files that a power cut may have emptied
	puts        []put            // that no checkpoint has met yet, oldest first
	keptPuts    []wire.Commit    // that were made of such, and nobody has heard of
	trashAge    trashAge

	left atomic.Pointer[left] // what the newest look at the live tree left out

	refs   sync.Mutex // one change of the refs at a time
	snapMu sync.Mutex // one snapshot at a time

	settling  sync.Mutex           // one upper at a time
	settledAt map[string]time.Time // by upper: what was written before is durable

	scrubMu sync.Mutex // one slice at a time
	scrub   *scrubPass

	reads  *reader
	chunks *chunkStore

	collectMu sync.Mutex // one collection at a time
	collected collected
}

// tracked is a captured path: what HEAD holds, and the file state in which it
// was seen to hold that. A zero stat means it must be hashed to know.
type tracked struct {
	Entry
	stat fileStat
}

// Open opens the engine on a live tree, making the repository if there is
// none, and takes it for itself until Close.
func Open(ctx context.Context, opts Options) (_ *Engine, err error) {
	const op = "keeper.Open"
	if opts.Git == "" {
		opts.Git = "git"
	}
	if opts.Now == nil {
		opts.Now = time.Now
	}
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	opts.Limits = opts.Limits.WithDefaults()
	root, err := filepath.Abs(opts.Root)
	if err != nil {
		return nil, fault.Wrap(op, err)
	}
	opts.Root = root
	e := &Engine{opts: opts, gitDir: filepath.Join(root, ".git"), rootFD: -1, known: map[string]bool{}, slowIgnores: map[slowIgnore]bool{}, settledAt: map[string]time.Time{}}
	e.reads = newReader(e)
	e.chunks = &chunkStore{dir: e.work("chunks"), max: opts.Limits.ChunkBytes, crash: e.crash}
	defer func() {
		if err != nil {
			err = errors.Join(fault.Wrap(op, err), e.Close())
		}
	}()
	if e.rootFD, err = unix.Open(root, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0); err != nil {
		return nil, &os.PathError{Op: "open", Path: root, Err: err}
	}
	if err := e.prepareGitDir(ctx); err != nil {
		return nil, err
	}
	if err := e.begun(); err != nil {
		return nil, err
	}
	if e.end != endClean {
		if err := e.chunks.syncNames(); err != nil {
			return nil, err
		}
	}
	if err := errors.Join(e.loadTrashAge(), e.recoverTrash(), e.loadPuts()); err != nil {
		return nil, err
	}
	if err := e.loadHead(ctx); err != nil {
		return nil, err
	}
	if err := e.healNewest(ctx); err != nil {
		return nil, err
	}
	if e.end == endUnknown && e.head == "" && e.damaged == nil {
		e.end = endClean // it is new
	}
	if e.end != endUnknown { // else what was not synced may be other than it was
		e.loadStats()
	}
	return e, e.loadDoubts()
}

// Close ends the engine and its helper processes.
func (e *Engine) Close() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	var errs []error
	if e.tracked != nil {
		errs = append(errs, e.goodbye(context.Background()))
		e.tracked = nil
	}
	errs = append(errs, e.reads.close())
	if e.lock != nil {
		errs = append(errs, process.Unlock(e.lock))
		e.lock = nil
	}
	if e.rootFD >= 0 {
		errs = append(errs, unix.Close(e.rootFD))
		e.rootFD = -1
	}
	return fault.Wrap("keeper.Close", errors.Join(errs...))
}

func (e *Engine) crash(point string) {
	if e.opts.Crash != nil {
		e.opts.Crash(point)
	}
}

func (e *Engine) work(elem ...string) string {
	return filepath.Join(append([]string{e.gitDir, workDir}, elem...)...)
}

// prepareGitDir makes .git what the engine relies on, whatever it was before:
// an imported or restored one could hold configuration, alternates or grafts
// of somebody else's choice.
func (e *Engine) prepareGitDir(ctx context.Context) error {
	st, err := os.Lstat(e.gitDir)
	fresh := errors.Is(err, fs.ErrNotExist)
	switch {
	case fresh:
	case err != nil:
		return err
	case !st.IsDir():
		return fault.New("", fault.Invalid, "Move the file .git out of the workspace's root; the computer keeps its history there.", errors.New(".git is not a directory"))
	}
	if fresh {
		if err := e.initRepository(ctx); err != nil {
			return err
		}
	}
	for _, d := range gitDirs {
		if err := plainDir(filepath.Join(e.gitDir, d)); err != nil {
			return err
		}
	}
	if e.lock, err = lockFile(e.work("lock")); err != nil {
		return err
	}
	if fresh || !defence.Off(defence.GitOwn) {
		if err := e.ownGitDir(); err != nil {
			return err
		}
	}
	if err := e.judgeDeeds(); err != nil { // before what tells is cleared away
		return err
	}
	return e.removeStale()
}

// ownGitDir takes out of .git what would have git look elsewhere, and makes its
// configuration, attributes, branch and hooks the engine's.
func (e *Engine) ownGitDir() error {
	for _, f := range []string{
		"objects/info/alternates", "objects/info/http-alternates", "objects/info/commit-graph", "info/grafts", "info/sparse-checkout",
		"info/exclude", "shallow", "commondir", "config.worktree", "index.lock", "HEAD.lock", "packed-refs.lock", "config.lock",
	} {
		if err := os.RemoveAll(filepath.Join(e.gitDir, f)); err != nil {
			return err
		}
	}
	for name, content := range ownFiles {
		if err := keepFile(filepath.Join(e.gitDir, name), content); err != nil {
			return err
		}
	}
	return e.keepHooks()
}

// gitDirs are what .git has before it is used.
var gitDirs = []string{workDir, workDir + "/chunks", "info", "objects", "objects/info", "objects/pack", "hooks", "refs", "refs/heads", "refs/choir"}

// ownFiles are files of .git that are the engine's.
var ownFiles = map[string]string{"config": repoConfig, "info/attributes": infoAttributes, "HEAD": "ref: " + branch + "\n"}

// initRepository makes .git in one step, so that a crash leaves none or a whole
// one: all that the engine wants in it is there, and on disk, before it has its name.
func (e *Engine) initRepository(ctx context.Context) error {
	// Not a dot-name git knows, and never captured: it is gone before the first walk.
	tmp := filepath.Join(e.opts.Root, ".git-new")
	if err := os.RemoveAll(tmp); err != nil {
		return err
	}
	cmd := e.command(ctx, "init", "--quiet", "--template=", "--object-format=sha1", "--bare", tmp)
	cmd.Dir = e.opts.Root
	cmd.Env = append(gitEnv(tmp), "GIT_DIR="+tmp)
	if out, err := cmd.CombinedOutput(); err != nil {
		return gitError(ctx, []string{"init"}, string(out), err)
	}
	for _, d := range gitDirs {
		if err := plainDir(filepath.Join(tmp, d)); err != nil {
			return err
		}
	}
	files := maps.Clone(ownFiles)
	files["hooks/"+pushHook] = prePush
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(tmp, name), []byte(content), 0o644); err != nil {
			return err
		}
	}
	if err := unix.Syncfs(e.rootFD); err != nil {
		return fmt.Errorf("sync: %w", err)
	}
	if err := os.Rename(tmp, e.gitDir); err != nil {
		return err
	}
	return syncDir(e.opts.Root)
}

// removeStale removes what a killed process left half done in .git.
func (e *Engine) removeStale() error {
	err := filepath.WalkDir(filepath.Join(e.gitDir, "refs"), func(p string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() && strings.HasSuffix(p, ".lock") {
			return os.Remove(p)
		}
		return err
	})
	if err != nil {
		return err
	}
	for _, glob := range []string{"objects/??/tmp_obj_*", tornPacks, "objects/tmp_*", "choir/tmp-merge-*", "choir/tmp-import-*", "choir/tmp-disk-*", "choir/incoming-*", "choir/chunks/tmp-*"} {
		if err := e.removeAll(glob); err != nil {
			return err
		}
	}
	return nil
}

// removeAll removes what a pattern matches in .git.
func (e *Engine) removeAll(glob string) error {
	found, err := filepath.Glob(filepath.Join(e.gitDir, glob))
	if err != nil {
		return err
	}
	for _, p := range found {
		if err := removeTree(p); err != nil {
			return err
		}
	}
	return nil
}

// tornPacks are what git leaves of a pack that it could not write: as much as the
// disk held.
const tornPacks = "objects/pack/tmp_*"

// plainDir makes sure that dir is a real directory.
func plainDir(dir string) error {
	st, err := os.Lstat(dir)
	if err == nil && st.IsDir() {
		return nil
	}
	if err == nil {
		if err := os.Remove(dir); err != nil {
			return err
		}
	} else if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return os.Mkdir(dir, 0o755)
}

// keepFile makes sure that a file is regular and holds content.
func keepFile(name, content string) error {
	if st, err := os.Lstat(name); err == nil && st.Mode().IsRegular() && st.Size() == int64(len(content)) {
		if got, err := os.ReadFile(name); err == nil && string(got) == content {
			return nil
		}
	}
	return writeDurably(name, []byte(content))
}

// writeDurably replaces a file of the engine's own, all or nothing.
func writeDurably(name string, content []byte) error {
	return writeDurablyBy(name+".tmp-choir", name, content)
}

func writeDurablyBy(tmp, name string, content []byte) error {
	f, err := os.OpenFile(tmp, os.O_WRONLY|os.O_CREATE|os.O_TRUNC|unix.O_NOFOLLOW, 0o644)
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return errors.Join(err, os.Remove(tmp))
	}
	if err := os.Rename(tmp, name); err != nil {
		return err
	}
	return syncDir(filepath.Dir(name))
}

func lockFile(name string) (*os.File, error) {
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o644)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		err = fault.New("", fault.InUse, "Another keeper works on this computer; end it first.", fmt.Errorf("lock %s: %w", name, err))
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// moveBranch points the branch at a commit, durably. The engine is its only
// writer and knows where it stood.
func (e *Engine) moveBranch(id string) error { return e.writeRef(branch, id) }

// writeRef points a ref at an object that is there, durably. Git's own command
// does not say what a write failed for. What it is written to first has the name
// of git's lock: nobody takes that for a ref, and one that stays is removed.
func (e *Engine) writeRef(ref, id string) error {
	e.refs.Lock()
	defer e.refs.Unlock()
	name := filepath.Join(e.gitDir, filepath.FromSlash(ref))
	dir := e.gitDir
	for part := range strings.SplitSeq(path.Dir(ref), "/") {
		at := filepath.Join(dir, part)
		if st, err := os.Lstat(at); err != nil || !st.IsDir() {
			if err := plainDir(at); err != nil {
				return err
			}
			if err := syncDir(dir); err != nil {
				return errors.Join(err, removeIfThere(at)) // it is made again, and synced
			}
		}
		dir = at
	}
	if err := errors.Join(e.unlock(ref), removeEmpty(name)); err != nil {
		return err
	}
	return writeDurablyBy(name+".lock", name, []byte(id+"\n"))
}

// removeEmpty removes a folder that has nothing but folders in it, as git does
// where a ref is to be; anything else stays.
func removeEmpty(dir string) error {
	if st, err := os.Lstat(dir); errors.Is(err, fs.ErrNotExist) || err == nil && !st.IsDir() {
		return nil
	}
	found, err := os.ReadDir(dir)
	for _, f := range found {
		err = errors.Join(err, removeEmpty(filepath.Join(dir, f.Name())))
	}
	return errors.Join(err, os.Remove(dir))
}

// unlock removes the locks that a git left on files of .git when it was killed, as
// at a context's end. Nobody else works there, and the caller waits for its own.
func (e *Engine) unlock(files ...string) error {
	for _, f := range files {
		if err := removeIfThere(filepath.Join(e.gitDir, filepath.FromSlash(f)+".lock")); err != nil {
			return err
		}
	}
	return nil
}

// forceRef points a ref of the engine's own at a commit, which has to be whole.
func (e *Engine) forceRef(ctx context.Context, ref, id string) error {
	if _, _, reason, err := e.checkObject(ctx, id, "commit"); err != nil {
		return err
	} else if reason != "" {
		return fmt.Errorf("commit %s, for %s, %s", wire.Short(id), ref, reason)
	}
	return e.writeRef(ref, id)
}

// deleteRef removes a ref if it is there. Git takes the folder away that it was
// the last one in.
func (e *Engine) deleteRef(ctx context.Context, ref string) error {
	e.refs.Lock()
	defer e.refs.Unlock()
	if err := e.unlock(ref, "packed-refs"); err != nil {
		return err
	}
	_, err := e.git(ctx, nil, "update-ref", "--no-deref", "-d", ref)
	return err
}

// resolve returns the whole id of a commit named by id, or by a prefix of at
// least 7 digits, or "HEAD".
func (e *Engine) resolve(ctx context.Context, name string) (string, error) {
	const op = "keeper.resolve"
	if name == "" || name == "HEAD" {
		name = branch
	} else if !isHex(name) || len(name) < 7 || len(name) > 40 {
		return "", fault.New(op, fault.Invalid, "Name a checkpoint by its commit id; `choir checkpoints` lists them.", fmt.Errorf("%q is not a commit id", wire.Short(name)))
	}
	id, err := e.nameOf(ctx, name+"^{commit}")
	if err == nil && id == "" {
		err = fault.New("", fault.NotFound, "`choir checkpoints` lists what there is.", fmt.Errorf("there is no checkpoint %s", wire.Short(name)))
	}
	return id, fault.Wrap(op, err)
}

func isHex(s string) bool {
	for i := range len(s) {
		if (s[i] < '0' || s[i] > '9') && (s[i] < 'a' || s[i] > 'f') {
			return false
		}
	}
	return s != ""
}
