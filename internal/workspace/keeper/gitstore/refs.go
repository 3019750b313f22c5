package gitstore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/workspace/keeper/disk"
	"choir.dev/choiros/internal/workspace/keeper/git"
	"choir.dev/choiros/internal/workspace/keeper/journal"
	"choir.dev/choiros/internal/workspace/keeper/wire"
)

// Main is the branch with the history of the live tree, and Logged the newest checkpoint
// that the host has in its log.
const (
	Main   = "refs/heads/main"
	Logged = "refs/choir/logged"
)

// DamagedRefs is where the newest commit of a damaged history is kept.
const DamagedRefs = "refs/choir/damaged/"

// MoveMain points the branch at a commit, durably. The engine is its only writer and knows
// its value.
func (s *Store) MoveMain(id string) error {
	if s.first {
		return s.beginMain(id)
	}
	return s.writeRef(Main, id)
}

// writeRef points a ref at an object that exists, or is written in the same act, durably.
// (Git's own command does not say why a write failed.) Main and Logged are read when no
// engine runs and nobody has read the journal, so they are files: Main is durable before
// anything else is done; Logged may be as it was after a crash, for what the log has is
// appended again and recognised.
func (s *Store) writeRef(ref, id string) error {
	if err := s.counts(); err != nil {
		return err
	}
	s.refs.Lock()
	defer s.refs.Unlock()
	file := journal.File{Name: ref, Content: []byte(id + "\n")}
	if ref != Main && ref != Logged {
		return s.keep(file)
	}
	tmp, err := s.journal.Stage(file)
	if err != nil {
		return err
	}
	name := filepath.Join(s.gitDir, filepath.FromSlash(ref))
	if ref == Logged {
		return disk.WriteWhole(tmp, name, file.Content)
	}
	return disk.WriteDurablyBy(tmp, name, file.Content)
}

// Unlock removes the lock files that a killed git left in .git. Nobody else works there,
// and the caller waits for its own git processes.
func (s *Store) Unlock(files ...string) error {
	for _, f := range files {
		if err := disk.RemoveIfThere(filepath.Join(s.gitDir, filepath.FromSlash(f)+".lock")); err != nil {
			return err
		}
	}
	return nil
}

// ForceRef points a ref of the engine's own at a commit, which has to be whole.
func (s *Store) ForceRef(ctx context.Context, ref, id string) error {
	if s.act.makes(id) {
		return s.writeRef(ref, id)
	}
	if _, _, reason, err := s.Check(ctx, id, "commit"); err != nil {
		return err
	} else if reason != "" {
		return fmt.Errorf("commit %s, for %s, %s", wire.Short(id), ref, reason)
	}
	return s.writeRef(ref, id)
}

// DeleteRef removes a ref if it exists. Its folder stays, for the next ref in it.
func (s *Store) DeleteRef(ctx context.Context, ref string) error {
	s.refs.Lock()
	defer s.refs.Unlock()
	if err := s.Unlock(ref, "packed-refs"); err != nil {
		return err
	}
	packed, err := s.anyPacked()
	if err != nil {
		return err
	}
	name := filepath.Join(s.gitDir, filepath.FromSlash(ref))
	if there, err := disk.Exists(name); err != nil || !there && !packed {
		return err
	}
	// The journal must be open first: it may name the ref, and would bring it back.
	if err := s.OpenJournal(); err != nil {
		return err
	}
	if err := s.journal.Note([]journal.File{{Name: ref, Gone: true}}, false); err != nil {
		return err
	}
	if packed {
		_, err := s.Git(ctx, nil, "update-ref", "--no-deref", "-d", ref)
		return err
	}
	return disk.RemoveIfThere(name)
}

// anyPacked reports whether there may be packed refs. The keeper packs none, but an
// imported history may have some.
func (s *Store) anyPacked() (bool, error) { return disk.Exists(filepath.Join(s.gitDir, "packed-refs")) }

// Ref is the object that a ref names, "" when there is no such ref. One that can't be read
// is an error and not a missing one.
func (s *Store) Ref(ctx context.Context, ref string) (string, error) {
	f, err := os.OpenFile(filepath.Join(s.gitDir, filepath.FromSlash(ref)), os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err == nil {
		raw, rerr := io.ReadAll(io.LimitReader(f, 64))
		if err := errors.Join(rerr, f.Close()); err == nil {
			if id := strings.TrimSuffix(string(raw), "\n"); wire.IsHex(id) && len(id) == 40 {
				return id, nil
			}
		}
	} else if errors.Is(err, fs.ErrNotExist) {
		if packed, err := s.anyPacked(); err != nil || !packed {
			return "", err
		}
	}
	return s.refByGit(ctx, ref) // packed, symbolic, or damaged
}

func (s *Store) refByGit(ctx context.Context, ref string) (string, error) {
	args := []string{"for-each-ref", "--format=%(refname) %(objectname)", ref}
	cmd := s.git.Command(ctx, args...)
	var out, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &git.PrefixBuffer{Max: 64 << 10, To: &out}, &git.PrefixBuffer{Max: 16 << 10, To: &stderr}
	if err := cmd.Run(); err != nil {
		return "", git.Error(ctx, args, stderr.String(), err)
	}
	for line := range strings.Lines(out.String()) {
		if name, id, _ := strings.Cut(strings.TrimSpace(line), " "); name == ref {
			return id, nil
		}
	}
	if stderr.Len() > 0 { // git only warns about a ref that it can't read
		return "", git.Error(ctx, args, stderr.String(), errors.New("the ref can't be read"))
	}
	return "", nil
}

// Refs lists the names of refs in a folder of them.
func (s *Store) Refs(ctx context.Context, folder string) ([]string, error) {
	packed, err := s.anyPacked()
	if err != nil {
		return nil, err
	}
	if packed {
		out, err := s.Git(ctx, nil, "for-each-ref", "--format=%(refname)", folder+"/")
		return strings.Fields(string(out)), err
	}
	found, err := os.ReadDir(filepath.Join(s.gitDir, filepath.FromSlash(folder)))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var refs []string
	for _, f := range found {
		if !f.IsDir() && !strings.HasSuffix(f.Name(), ".lock") {
			refs = append(refs, folder+"/"+f.Name())
		}
	}
	return refs, err
}

// Resolve returns the whole id of a commit named by id, or by a prefix of at
// least 7 digits, or "HEAD".
func (s *Store) Resolve(ctx context.Context, name string) (string, error) {
	const op = "keeper.resolve"
	if name == "" || name == "HEAD" {
		id, err := s.Ref(ctx, Main)
		if err == nil && id == "" {
			err = fault.New("", fault.NotFound, "`choir checkpoints` lists what there is.", errors.New("there is no checkpoint yet"))
		}
		return id, fault.Wrap(op, err)
	} else if !wire.IsHex(name) || len(name) < 7 || len(name) > 40 {
		return "", fault.New(op, fault.Invalid, "Name a checkpoint by its commit id; `choir checkpoints` lists them.", fmt.Errorf("%q is not a commit id", wire.Short(name)))
	}
	id, err := s.NameOf(ctx, name+"^{commit}")
	if err == nil && id == "" {
		err = fault.New("", fault.NotFound, "`choir checkpoints` lists what there is.", fmt.Errorf("there is no checkpoint %s", wire.Short(name)))
	}
	return id, fault.Wrap(op, err)
}

// NameOf is the object that a revision names, "" when there is none. If git could not look
// it up, that is an error.
func (s *Store) NameOf(ctx context.Context, rev string) (string, error) {
	for _, kind := range []string{kindCommit, kindTree} {
		if full, ok := strings.CutSuffix(rev, "^{"+kind+"}"); ok && wire.IsHex(full) && len(full) == 40 {
			if id, ok, err := s.nameOfFull(ctx, full, kind); ok {
				return id, err
			}
		}
	}
	id, err := s.GitLine(ctx, "rev-parse", "--verify", "--quiet", "--end-of-options", rev)
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.ExitCode() == 1 {
		return "", nil
	}
	return id, err
}

// TreeOf is the tree that a ref points to, "" when there is no such ref. One that can't be
// read is an error and not a missing one.
func (s *Store) TreeOf(ctx context.Context, ref string) (string, error) {
	id, err := s.Ref(ctx, ref)
	if err != nil || id == "" {
		return "", err
	}
	c, err := s.rawCommit(ctx, id)
	return c.tree, err
}
