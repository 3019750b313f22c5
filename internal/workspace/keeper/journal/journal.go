package journal

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"choir.dev/choiros/internal/durable"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/workspace/keeper/disk"
)

// File is a file of .git as an act leaves it.
type File struct {
	Name    string // below .git
	Content []byte
	Gone    bool // it is removed
}

const (
	magic     = "choir journal 1\n"
	full      = 16 << 20  // bytes from which on it begins anew
	most      = 2 * full  // bytes from which on it takes nothing more before it has
	maxEntry  = 128 << 20 // bytes of one entry
	MaxObject = 1 << 20   // bytes of an object that goes into one; larger ones are synced by themselves
	MaxRecord = 16 << 20  // likewise of a record
)

// Journal is the journal of one repository. It may be used concurrently.
type Journal struct {
	mu     sync.Mutex // one entry at a time; guards what follows
	gitDir string
	f      *os.File        // nil while it is not open
	salt   [16]byte        // of this beginning: an entry of an earlier one never counts
	size   int64           // bytes up to the end of the last entry, -1 without a beginning
	count  uint64          // entries since the beginning
	named  map[string]bool // files that may not be on disk under their names yet
	broken error           // why no more entries are accepted, nil while all is well
}

func (j *Journal) file() string { return filepath.Join(j.gitDir, "choir", "journal") }

// New is the journal of a repository. It opens nothing yet.
func New(gitDir string) *Journal { return &Journal{gitDir: gitDir} }

// NewHead is an empty journal's content.
func NewHead() []byte {
	var salt [16]byte
	rand.Read(salt[:])
	return append([]byte(magic), salt[:]...)
}

// Open opens the journal and applies its content, unless it is open. Nobody else may work
// in the repository. If it fails, the journal stays as it was for the next one to open it.
func (j *Journal) Open() (err error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.f != nil {
		return nil
	}
	f, err := os.OpenFile(j.file(), os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return err
	}
	st, err := f.Stat()
	if err != nil || !st.Mode().IsRegular() {
		return errors.Join(err, f.Close(), errors.New("the keeper's journal is no file"))
	}
	j.f, j.named, j.broken = f, map[string]bool{}, nil
	defer func() {
		if err != nil {
			err = errors.Join(err, f.Close())
			j.f = nil
		}
	}()
	todo, err := j.read()
	if err != nil {
		return err
	}
	if j.size < 0 && st.Size() > 0 { // damaged, or cut off before anything was acknowledged
		if err := errors.Join(os.MkdirAll(filepath.Join(j.gitDir, "choir", "damaged"), 0o755), j.setAside()); err != nil {
			return err
		}
	}
	for _, k := range todo {
		if err := j.again(k); err != nil {
			return fmt.Errorf("do %s again, as the journal says: %w", k.Name, err)
		}
		j.named[k.Name] = true
	}
	if j.size == st.Size() && j.count == 0 {
		return nil
	}
	return j.begin()
}

// setAside keeps a journal that can't be read, for people to examine.
func (j *Journal) setAside() error {
	all := io.NewSectionReader(j.f, 0, full)
	to, err := os.OpenFile(filepath.Join(j.gitDir, "choir", "damaged", "journal"), os.O_WRONLY|os.O_CREATE|os.O_TRUNC|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(to, all)
	return errors.Join(err, to.Close())
}

// read returns the journal's content: the last version of each name, in the order of their
// last entries.
func (j *Journal) read() ([]File, error) {
	head := make([]byte, len(magic)+len(j.salt))
	if _, err := io.ReadFull(j.f, head); err != nil || !bytes.HasPrefix(head, []byte(magic)) {
		if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
			return nil, err
		}
		j.size = -1 // it has no beginning yet, or one that was cut off before anything was told
		return nil, nil
	}
	copy(j.salt[:], head[len(magic):])
	j.size, j.count = int64(len(head)), 0
	last := map[string]int{}
	var all []File
	for {
		entry, files, err := j.next()
		if err != nil {
			return nil, err
		}
		if entry == 0 {
			break
		}
		if j.size += entry; j.size > full+2*maxEntry {
			return nil, fault.New("keeper.journal", fault.Damaged, "Move .git/choir/journal out of the way; what it alone holds is lost then.", errors.New("the journal is longer than any of the keeper's"))
		}
		j.count++
		for _, k := range files {
			last[k.Name] = len(all)
			all = append(all, k)
		}
	}
	out := all[:0]
	for i, k := range all {
		if at, ok := last[k.Name]; ok && at == i {
			out = append(out, k)
		}
	}
	return out, nil
}

// sum is what an entry's content is compared with.
func (j *Journal) sum(n uint64, content []byte) [sha256.Size]byte {
	h := sha256.New()
	h.Write(j.salt[:])
	_ = binary.Write(h, binary.BigEndian, n) // a hash takes all
	h.Write(content)
	return [sha256.Size]byte(h.Sum(nil))
}

// next reads an entry; length 0 means the end: whatever follows was never complete.
func (j *Journal) next() (int64, []File, error) {
	var front [4 + sha256.Size]byte
	if n, err := j.f.ReadAt(front[:], j.size); n < len(front) {
		if errors.Is(err, io.EOF) {
			err = nil
		}
		return 0, nil, err
	}
	size := binary.BigEndian.Uint32(front[:])
	if size == 0 || size > maxEntry {
		return 0, nil, nil
	}
	content := make([]byte, size)
	if n, err := j.f.ReadAt(content, j.size+int64(len(front))); n < len(content) {
		if errors.Is(err, io.EOF) {
			err = nil
		}
		return 0, nil, err
	}
	if j.sum(j.count, content) != [sha256.Size]byte(front[4:]) {
		return 0, nil, nil
	}
	files, ok := decode(content)
	if !ok {
		return 0, nil, fault.New("keeper.journal", fault.Damaged, "Move .git/choir/journal out of the way; what it alone holds is lost then.", errors.New("the journal names files that are none of the keeper's"))
	}
	return int64(len(front)) + int64(size), files, nil
}

func encode(files []File) []byte {
	var b []byte
	for _, k := range files {
		flag := byte(0)
		if k.Gone {
			flag = 1
		}
		b = append(b, flag)
		b = binary.BigEndian.AppendUint16(b, uint16(len(k.Name)))
		b = binary.BigEndian.AppendUint32(b, uint32(len(k.Content)))
		b = append(append(b, k.Name...), k.Content...)
	}
	return b
}

func decode(b []byte) ([]File, bool) {
	var out []File
	for len(b) > 0 {
		if len(b) < 7 {
			return nil, false
		}
		flag, n, size := b[0], int(binary.BigEndian.Uint16(b[1:])), int(binary.BigEndian.Uint32(b[3:]))
		if b = b[7:]; flag > 1 || len(b) < n || len(b)-n < size {
			return nil, false
		}
		k := File{Name: string(b[:n]), Content: b[n : n+size], Gone: flag == 1}
		if b = b[n+size:]; !mayBeKept(k.Name) {
			return nil, false
		}
		out = append(out, k)
	}
	return out, true
}

// journalled matches the names that the journal may write: objects, refs and the records of
// plans and of the trash.
var journalled = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^(objects/[0-9a-f]{2}/[0-9a-f]{38}|refs/choir(/[A-Za-z0-9_][A-Za-z0-9_.-]{0,200}){2}|choir/publish/[A-Za-z0-9][A-Za-z0-9_-]{0,99}/(plan\.json|started|staged|result\.json)|choir/trash/[A-Za-z0-9][A-Za-z0-9_-]{0,99}/(meta\.json|uncaptured|redo))$`)
})

func mayBeKept(name string) bool {
	return journalled().MatchString(name) && !strings.Contains(name, "..") && !strings.HasSuffix(name, ".lock")
}

// again writes one file as an entry says, unless it is so already.
func (j *Journal) again(k File) error {
	name := filepath.Join(j.gitDir, filepath.FromSlash(k.Name))
	if k.Gone {
		return disk.RemoveIfThere(name)
	}
	if there, err := os.ReadFile(name); err == nil && bytes.Equal(there, k.Content) {
		return nil
	}
	tmp, err := j.Stage(k)
	if err != nil {
		return err
	}
	if st, err := os.Lstat(name); err == nil && !st.Mode().IsRegular() { // it is not the keeper's, and stays
		to := filepath.Join(j.gitDir, "choir", "damaged", strings.ReplaceAll(k.Name, "/", "-"))
		if err := errors.Join(os.MkdirAll(filepath.Dir(to), 0o755), disk.RemoveTree(to), os.Rename(name, to)); err != nil {
			return err
		}
	}
	return os.Rename(tmp, name)
}

// Stage writes a file's content beside its name, without syncing.
func (j *Journal) Stage(k File) (string, error) {
	dir := j.gitDir
	for part := range strings.SplitSeq(path.Dir(k.Name), "/") {
		dir = filepath.Join(dir, part)
		if err := disk.PlainDir(dir); err != nil {
			return "", err
		}
	}
	name := filepath.Join(j.gitDir, filepath.FromSlash(k.Name))
	tmp, perm := name+".tmp-choir", fs.FileMode(0o644)
	switch {
	case strings.HasPrefix(k.Name, "objects/"):
		tmp, perm = filepath.Join(j.gitDir, "objects", "tmp_obj_choir_again"), 0o444
	case strings.HasPrefix(k.Name, "refs/"):
		// Git's own name for a lock file: nobody takes it for a ref, and a stale one is
		// removed.
		tmp = name + ".lock"
		if err := disk.RemoveEmpty(name); err != nil {
			return "", err
		}
	}
	if err := disk.RemoveIfThere(tmp); err != nil {
		return "", err
	}
	if err := os.WriteFile(tmp, k.Content, perm); err != nil {
		return "", errors.Join(err, disk.RemoveIfThere(tmp))
	}
	return tmp, nil
}

// isTwin says that a record of the trash is one file with another name of its entry: they
// hold the same and are replaced or removed, never written to.
func isTwin(a, b File) bool {
	return strings.HasPrefix(a.Name, "choir/trash/") && path.Dir(a.Name) == path.Dir(b.Name) && bytes.Equal(a.Content, b.Content)
}

// stageName is Stage of a file whose twin was staged.
func (j *Journal) stageName(twin string, k File) (string, error) {
	tmp := filepath.Join(j.gitDir, filepath.FromSlash(k.Name)) + ".tmp-choir"
	err := os.Link(twin, tmp)
	if errors.Is(err, fs.ErrExist) {
		if err = disk.RemoveIfThere(tmp); err == nil {
			err = os.Link(twin, tmp)
		}
	}
	if err != nil {
		return j.Stage(k) // a file system without such names
	}
	return tmp, nil
}

// Place gives files their names: all of them or, as far as the disk allows, none.
func (j *Journal) Place(files []File) (err error) {
	tmps := make([]string, 0, len(files))
	defer func() {
		if err != nil {
			for _, tmp := range tmps {
				err = errors.Join(err, disk.RemoveIfThere(tmp))
			}
		}
	}()
	for i, k := range files {
		same := slices.IndexFunc(files[:i], func(f File) bool { return isTwin(f, k) })
		tmp, err := "", error(nil)
		if same < 0 {
			tmp, err = j.Stage(k)
		} else {
			tmp, err = j.stageName(tmps[same], k)
		}
		if err != nil {
			return err
		}
		tmps = append(tmps, tmp)
	}
	for i, k := range files {
		if err := os.Rename(tmps[i], filepath.Join(j.gitDir, filepath.FromSlash(k.Name))); err != nil {
			return err
		}
	}
	return nil
}

// Add makes an act durable, and then calls do, which gives the files their names. If that
// fails, nothing of the act counts.
func (j *Journal) Add(files []File, do func() error) (err error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if err := j.room(); err != nil {
		return err
	}
	before, counted := j.size, j.count
	if err := j.write(files, true); err != nil {
		return err
	}
	for _, k := range files {
		j.named[k.Name] = true
	}
	if err := do(); err != nil {
		return errors.Join(err, j.cut(before, counted))
	}
	j.bound()
	return nil
}

// Note writes an entry of which nothing is put under its name. Unless it is synced it
// need not be durable, but is before any that follows.
// On a full disk the journal begins anew instead, and holds nothing against it.
func (j *Journal) Note(files []File, sync bool) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, k := range files {
		if sync && j.named != nil { // that they are gone outlives the journal
			j.named[k.Name] = true
		}
	}
	if err := j.room(); err != nil {
		return err
	}
	err := j.write(files, sync)
	if err != nil && j.broken == nil && fault.NoSpace(err) {
		return j.begin()
	}
	if err == nil {
		j.bound()
	}
	return err
}

// NoteAndPlace is Note of a file that is put under its name.
func (j *Journal) NoteAndPlace(k File) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if err := j.room(); err != nil {
		return err
	}
	before, counted := j.size, j.count
	if err := j.write([]File{k}, false); err != nil {
		return err
	}
	j.named[k.Name] = true
	if err := j.Place([]File{k}); err != nil {
		return errors.Join(err, j.cut(before, counted))
	}
	j.bound()
	return nil
}

// room refuses what would make a journal longer that can't begin anew, as where a file
// that it names can't be synced: the next start reads none of any length.
func (j *Journal) room() error {
	if j.size < most || j.f == nil || j.broken != nil {
		return nil
	}
	return j.begin()
}

// bound has a long journal begin anew. What was asked for is done by then: that it
// can't is met by the next, until there is no room.
func (j *Journal) bound() {
	if j.size >= full {
		_ = j.begin()
	}
}

func (j *Journal) write(files []File, sync bool) error {
	if j.broken != nil {
		return j.broken
	}
	if j.f == nil {
		return fault.New("keeper.journal", fault.Internal, "", errors.New("the journal is not open"))
	}
	for _, k := range files {
		if !mayBeKept(k.Name) {
			return fault.New("keeper.journal", fault.Internal, "", fmt.Errorf("%q is no name for the journal", k.Name))
		}
	}
	content := encode(files)
	if len(content) > maxEntry {
		return fault.New("keeper.journal", fault.Exhausted, "", fmt.Errorf("an act of %d bytes is too large for the journal", len(content)))
	}
	sum := j.sum(j.count, content)
	entry := append(binary.BigEndian.AppendUint32(nil, uint32(len(content))), sum[:]...)
	entry = append(entry, content...)
	_, err := j.f.WriteAt(entry, j.size)
	if err == nil && sync {
		err = j.f.Sync()
	}
	if err != nil {
		return errors.Join(err, j.cut(j.size, j.count))
	}
	j.size += int64(len(entry))
	j.count++
	return nil
}

// cut removes what follows size. If even that fails, nothing more is acknowledged: it is
// unknown what would be read after a crash.
func (j *Journal) cut(size int64, count uint64) error {
	err := errors.Join(j.f.Truncate(size), j.f.Sync())
	if err != nil {
		j.broken = fault.New("keeper.journal", fault.Unavailable, "Have the computer sleep, and wake it.", fmt.Errorf("the journal can't be taken back: %w", err))
		return j.broken
	}
	j.size, j.count = size, count
	return nil
}

// Whole reports whether the journal says what was acknowledged and nothing else: what failed
// was taken back.
func (j *Journal) Whole() bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.broken == nil
}

// Settle makes everything that the journal names durable under its name, and restarts the
// journal.
func (j *Journal) Settle() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.f == nil || j.broken != nil || j.count == 0 {
		return nil
	}
	return j.begin()
}

// Outdate is Settle for a caller that is about to write, past the journal, what it may
// name.
func (j *Journal) Outdate() error {
	if err := j.Settle(); err != nil {
		return err
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.broken
}

func (j *Journal) begin() error {
	if err := j.syncNamed(); err != nil {
		return err
	}
	head := NewHead()
	fresh := j.size < 0
	// The new beginning invalidates whatever follows it.
	_, err := j.f.WriteAt(head, 0)
	if err = errors.Join(err, j.f.Truncate(int64(len(head))), j.f.Sync()); err == nil && fresh {
		err = durable.SyncDir(filepath.Dir(j.file()))
	}
	if err != nil {
		j.broken = fault.New("keeper.journal", fault.Unavailable, "Have the computer sleep, and wake it.", fmt.Errorf("the journal can't begin anew: %w", err))
		return j.broken
	}
	copy(j.salt[:], head[len(magic):])
	j.size, j.count, j.named = int64(len(head)), 0, map[string]bool{}
	return nil
}

// syncNamed syncs every file that the journal names, and the folders on the way.
func (j *Journal) syncNamed() error {
	all := map[string]bool{}
	for name := range j.named {
		for ; name != "." && !all[name]; name = path.Dir(name) {
			all[name] = true
		}
		if len(all) > disk.SyncEachUpTo {
			return disk.SyncAll(j.gitDir)
		}
	}
	var g errgroup.Group // together, so that they share commits of the file system's journal
	g.SetLimit(8)
	for name := range all {
		g.Go(func() error {
			f, err := os.OpenFile(filepath.Join(j.gitDir, filepath.FromSlash(name)), os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
			if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP) || errors.Is(err, unix.ENXIO) {
				return nil // it was removed since, which the sync of its folder makes durable; or it is damaged, which its reader reports
			}
			if err != nil {
				return err
			}
			defer f.Close() // only synced
			if st, err := f.Stat(); err != nil || !st.Mode().IsRegular() && !st.IsDir() {
				return err
			}
			return f.Sync()
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	if len(all) == 0 {
		return nil
	}
	return durable.SyncDir(j.gitDir)
}

func (j *Journal) Close() error {
	err := j.Settle()
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.f == nil {
		return err
	}
	err = errors.Join(err, j.f.Close())
	j.f = nil
	return err
}
