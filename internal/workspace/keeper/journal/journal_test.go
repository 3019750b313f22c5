package journal_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/workspace/keeper/gitstore"
	"choir.dev/choiros/internal/workspace/keeper/journal"
	"choir.dev/choiros/internal/workspace/keeper/objects"
	"choir.dev/choiros/internal/workspace/keeper/wire"
)

func newStore(t *testing.T) (*gitstore.Store, string) {
	t.Helper()
	root := t.TempDir()
	s := gitstore.NewStore(gitstore.StoreOptions{Root: root, Git: "git", Limits: wire.Limits{}.WithDefaults(), Crash: func(string) {}})
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	if _, err := s.Prepare(t.Context()); err != nil {
		t.Fatal(err)
	}
	return s, root
}

// doAct commits a file and keeps a record, as one act.
func doAct(t *testing.T, s *gitstore.Store, n int) (commit string) {
	t.Helper()
	err := s.Batch(func(flush func() error) error {
		blob, err := s.Write(t.Context(), []objects.Object{{Kind: "blob", Content: fmt.Append(nil, "content ", n)}})
		if err != nil {
			return err
		}
		tree, err := s.WriteTree(t.Context(), gitstore.Tree{"f": {Mode: wire.ModeFile, ID: blob[0]}})
		if err != nil {
			return err
		}
		c, err := s.MakeCommit(t.Context(), tree, "", wire.Note{Kind: "auto", Message: fmt.Sprint(n)}, int64(n)*1000)
		if err != nil {
			return err
		}
		commit = c.Commit
		if err := s.ForceRef(t.Context(), newest, commit); err != nil {
			return err
		}
		if err := s.Keep(fmt.Sprintf("publish/p%d/plan.json", n), []byte("{}")); err != nil {
			return err
		}
		return flush()
	})
	if err != nil {
		t.Fatal(err)
	}
	return commit
}

// newest is the ref that each act moves.
const newest = "refs/choir/task/newest"

func journalOf(root string) string { return filepath.Join(root, ".git/choir/journal") }

// recovered is a repository of which a power cut left nothing but the journal.
func recovered(t *testing.T, journal []byte) (*gitstore.Store, string, error) {
	t.Helper()
	s, root := newStore(t)
	if err := os.WriteFile(journalOf(root), journal, 0o600); err != nil {
		t.Fatal(err)
	}
	return s, root, s.OpenJournal()
}

// TestAnActIsWholeOrNotAtAll shows that when nothing but the journal reached the disk, all that was
// acknowledged is there again, and that of an act whose entry is cut off or damaged there is
// nothing, while the acts before it are complete.
func TestAnActIsWholeOrNotAtAll(t *testing.T) {
	s, root := newStore(t)
	if err := s.OpenJournal(); err != nil {
		t.Fatal(err)
	}
	var commits []string
	var journals [][]byte
	for n := range 3 {
		commits = append(commits, doAct(t, s, n))
		raw, err := os.ReadFile(journalOf(root))
		if err != nil {
			t.Fatal(err)
		}
		journals = append(journals, raw)
	}
	check := func(what string, journal []byte, acts int) {
		t.Helper()
		s, root, err := recovered(t, journal)
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		want := ""
		if acts > 0 {
			want = commits[acts-1]
		}
		if got, err := s.Ref(t.Context(), newest); err != nil || got != want {
			t.Errorf("%s: the ref names %q, %v; want %q", what, got, err, want)
		}
		for n, commit := range commits {
			_, err := s.Commit(t.Context(), commit)
			_, statErr := os.Stat(filepath.Join(root, fmt.Sprintf(".git/choir/publish/p%d/plan.json", n)))
			if is := n < acts; is != (err == nil) || is != (statErr == nil) {
				t.Errorf("%s: of act %d there is the commit (%v) and the record (%v)", what, n, err, statErr)
			}
			if err == nil {
				c, _ := s.Commit(t.Context(), commit)
				en, err := s.Lookup(t.Context(), c.Tree, "f")
				var b bytes.Buffer
				if _, _, rerr := s.Read(t.Context(), en.ID, -1, &b); err != nil || rerr != nil || b.String() != fmt.Sprint("content ", n) {
					t.Errorf("%s: act %d holds %q, %v, %v", what, n, b.String(), err, rerr)
				}
			}
		}
		// What was cut off does not come back behind a new entry.
		if next := doAct(t, s, 7); next == want {
			t.Fatal("the same commit twice")
		}
		if after, err := os.ReadFile(journalOf(root)); err != nil || len(journal) > 100 && bytes.Equal(after[:32], journal[:32]) {
			t.Errorf("%s: the journal goes on where it was cut off (%v)", what, err)
		}
	}
	whole := journals[2]
	check("all of it", whole, 3)
	check("two entries", journals[1], 2)
	last := len(journals[1])
	for _, at := range []int{last + 1, last + 20, last + 40, last + (len(whole)-last)/2, len(whole) - 1} {
		check(fmt.Sprintf("cut at %d of %d", at, len(whole)), whole[:at], 2)
		if at < len(whole) {
			flipped := bytes.Clone(whole)
			flipped[at] ^= 0x40
			check(fmt.Sprintf("damaged at %d", at), flipped, 2)
		}
	}
	missing := append(bytes.Clone(journals[0]), whole[last:]...)
	check("an entry out of its turn", missing, 1)
	check("no beginning", append(make([]byte, 32), whole[32:]...), 0)
	check("nothing", nil, 0)
}

// TestWhatWasRemovedStaysAway shows that the journal does not bring back a file that was removed
// after its entry was written.
func TestWhatWasRemovedStaysAway(t *testing.T) {
	s, root := newStore(t)
	doAct(t, s, 1)
	if err := s.ForceRef(t.Context(), "refs/choir/task/t", doAct(t, s, 2)); err != nil {
		t.Fatal(err)
	}
	if err := s.DeleteRef(t.Context(), "refs/choir/task/t"); err != nil {
		t.Fatal(err)
	}
	if err := s.Forget("publish/p1/plan.json"); err != nil {
		t.Fatal(err)
	}
	raw, err := os.ReadFile(journalOf(root))
	if err != nil {
		t.Fatal(err)
	}
	again, at, err := recovered(t, raw)
	if err != nil {
		t.Fatal(err)
	}
	if id, err := again.Ref(t.Context(), "refs/choir/task/t"); err != nil || id != "" {
		t.Errorf("a deleted ref names %q, %v", id, err)
	}
	if _, err := os.Stat(filepath.Join(at, ".git/choir/publish/p1/plan.json")); !os.IsNotExist(err) {
		t.Errorf("a removed record is back: %v", err)
	}
	if _, err := os.Stat(filepath.Join(at, ".git/choir/publish/p2/plan.json")); err != nil {
		t.Errorf("the control, which was not removed: %v", err)
	}
}

// TestAForeignJournalWritesNothing shows that a journal that came with somebody else's .git is
// refused as a whole unless it names only what the keeper writes.
func TestAForeignJournalWritesNothing(t *testing.T) {
	for name, ok := range map[string]bool{
		"refs/choir/task/t": true, "choir/publish/p/plan.json": true, "choir/trash/t/redo": true,
		"hooks/post-checkout": false, "config": false, "../evil": false, "objects/../../evil": false, "refs/choir/../../config": false,
		"choir/publish/p/aside/0": false, "choir/trash/t/content": false, "refs/heads/main": false, "refs/choir/logged": false, "objects/info/alternates": false, "refs/choir/x/y.lock": false, "/etc/x": false,
	} {
		content := append(binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint16([]byte{0}, uint16(len(name))), 1), name+"x"...)
		var salt [16]byte
		sum := sha256.Sum256(append(append(salt[:], make([]byte, 8)...), content...))
		raw := append(append([]byte("choir journal 1\n"), salt[:]...), binary.BigEndian.AppendUint32(nil, uint32(len(content)))...)
		raw = append(append(raw, sum[:]...), content...)
		_, root, err := recovered(t, raw)
		_, statErr := os.Lstat(filepath.Join(root, ".git", name))
		if ok != (err == nil) || !ok && !fault.Is(err, fault.Damaged) || ok && statErr != nil {
			t.Errorf("a journal that names %q: %v, %v", name, err, statErr)
		}
	}
}

// reopened is a repository that its last owner left without closing it, as a kill does.
func reopened(t *testing.T, root string) *gitstore.Store {
	t.Helper()
	s := gitstore.NewStore(gitstore.StoreOptions{Root: root, Git: "git", Crash: func(string) {}})
	t.Cleanup(func() { s.Close() })
	if err := s.OpenJournal(); err != nil {
		t.Fatal(err)
	}
	return s
}

// TestAJournalThatWasNotDoneAgainStays shows that whoever can't carry out again what the journal
// holds, as on a full disk, leaves the journal as it was for the next one.
func TestAJournalThatWasNotDoneAgainStays(t *testing.T) {
	s, root := newStore(t)
	commit := doAct(t, s, 1)
	raw, err := os.ReadFile(journalOf(root))
	if err != nil {
		t.Fatal(err)
	}
	s, root = newStore(t)
	inTheWay := filepath.Join(root, ".git/objects/tmp_obj_choir_again/x")
	if err := os.MkdirAll(inTheWay, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(journalOf(root), raw, 0o600); err != nil {
		t.Fatal(err)
	}
	for range 2 { // nor does anybody take it for open
		if err := s.OpenJournal(); err == nil {
			t.Error("nothing was in its way")
		}
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if err := os.RemoveAll(filepath.Dir(inTheWay)); err != nil {
		t.Fatal(err)
	}
	again := reopened(t, root)
	if id, err := again.Ref(t.Context(), newest); err != nil || id != commit {
		t.Errorf("the ref names %q instead of %s, %v", id, commit, err)
	}
	if _, err := again.Commit(t.Context(), commit); err != nil {
		t.Error(err)
	}
}

// TestALargeRecordOutlivesTheJournal shows that a record that is too large for the journal, and so
// is written beside it, counts as newer than what the journal says of that name.
func TestALargeRecordOutlivesTheJournal(t *testing.T) {
	large := bytes.Repeat([]byte("0123456789abcdef"), 1<<20+1)
	for what, before := range map[string]func(s *gitstore.Store) error{
		"a removal":     func(s *gitstore.Store) error { return s.Forget("publish/p/plan.json") },
		"a smaller one": func(s *gitstore.Store) error { return s.Keep("publish/p/plan.json", []byte("{}")) },
	} {
		s, root := newStore(t)
		if err := before(s); err != nil {
			t.Fatal(err)
		}
		if err := s.Keep("publish/p/plan.json", large); err != nil {
			t.Fatal(err)
		}
		if err := s.Keep("publish/p/started", nil); err != nil {
			t.Fatal(err)
		}
		reopened(t, root)
		if got, err := os.ReadFile(filepath.Join(root, ".git/choir/publish/p/plan.json")); err != nil || !bytes.Equal(got, large) {
			t.Errorf("after %s the record has %d bytes, %v", what, len(got), err)
		}
	}
}

// TestNotesDoNotFillTheJournal shows that a journal to which only notes are added begins anew as
// well, because a journal beyond its bound is not read.
func TestNotesDoNotFillTheJournal(t *testing.T) {
	s, root := newStore(t)
	note := make([]byte, 15<<20)
	for range 4 {
		if err := s.Note("publish/p/result.json", note); err != nil {
			t.Fatal(err)
		}
	}
	if st, err := os.Stat(journalOf(root)); err != nil || st.Size() > 32<<20 {
		t.Errorf("the journal has %d bytes, %v", st.Size(), err)
	}
	reopened(t, root)
	if st, err := os.Stat(filepath.Join(root, ".git/choir/publish/p/result.json")); err != nil || st.Size() != int64(len(note)) {
		t.Errorf("the last of them: %v, %v", st, err)
	}
}

// TestAJournalThatCantBeginAnewTakesNothingMore shows that while a file that it names can't be
// synced, the journal refuses what would make it longer than the next start reads. It accepts that
// once the file can be synced, and what was acknowledged is there.
func TestAJournalThatCantBeginAnewTakesNothingMore(t *testing.T) {
	s, root := newStore(t)
	var had, none unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &had); err != nil {
		t.Fatal(err)
	}
	j := journal.New(filepath.Join(root, ".git"))
	if err := errors.Join(s.Close(), j.Open()); err != nil {
		t.Fatal(err)
	}
	content := make([]byte, 12<<20)
	name := func(n int) string { return fmt.Sprintf("choir/publish/p%d/result.json", n) }
	// The files that an act writes exist before the moment from which no file can be opened, as
	// when there are too many open.
	act := func(n int, scarce bool) error {
		files := []journal.File{{Name: name(n), Content: content}}
		err := j.Add(files, func() error {
			if err := j.Place(files); err != nil {
				return err
			}
			if scarce {
				none = unix.Rlimit{Cur: 0, Max: had.Max}
				return unix.Setrlimit(unix.RLIMIT_NOFILE, &none)
			}
			return nil
		})
		return errors.Join(err, unix.Setrlimit(unix.RLIMIT_NOFILE, &had))
	}
	acknowledged := 0
	for ; acknowledged < 4; acknowledged++ {
		if err := act(acknowledged, true); err != nil {
			t.Fatal(err)
		}
		if st, err := os.Stat(journalOf(root)); err != nil || st.Size() > 48<<20 {
			t.Fatalf("the journal has %d bytes, %v", st.Size(), err)
		}
		if st, err := os.Stat(journalOf(root)); err == nil && st.Size() >= 32<<20 {
			break
		}
	}
	if acknowledged == 4 {
		t.Fatal("it could begin anew")
	}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 0, Max: had.Max}); err != nil {
		t.Fatal(err)
	}
	err := j.Note([]journal.File{{Name: name(9), Content: content}}, true)
	if rerr := unix.Setrlimit(unix.RLIMIT_NOFILE, &had); rerr != nil {
		t.Fatal(rerr)
	}
	if err == nil {
		t.Error("it took more")
	}
	if err := act(10, false); err != nil {
		t.Errorf("once files can be opened: %v", err)
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	for n := range acknowledged + 1 {
		if st, err := os.Stat(filepath.Join(root, ".git", name(n))); err != nil || st.Size() != int64(len(content)) {
			t.Errorf("act %d: %v", n, err)
		}
	}
}

// TestARefThatGitRemovedStaysGone shows that the journal does not bring back a ref that git itself
// removed, as it does in a history that was brought along with packed refs.
func TestARefThatGitRemovedStaysGone(t *testing.T) {
	for _, packed := range []bool{false, true} {
		s, root := newStore(t)
		commit := doAct(t, s, 1)
		if packed {
			if err := os.WriteFile(filepath.Join(root, ".git/packed-refs"), fmt.Appendf(nil, "# pack-refs with: peeled fully-peeled sorted \n%s refs/choir/task/other\n", commit), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if err := s.DeleteRef(t.Context(), newest); err != nil {
			t.Fatal(err)
		}
		if id, err := reopened(t, root).Ref(t.Context(), newest); err != nil || id != "" {
			t.Errorf("packed %t: the ref names %q, %v", packed, id, err)
		}
	}
}
