package gitstore

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"

	"choir.dev/choiros/internal/durable"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/workspace/keeper/disk"
	"choir.dev/choiros/internal/workspace/keeper/git"
	"choir.dev/choiros/internal/workspace/keeper/objects"
)

// What may turn out not to be wanted is written to a quarantine, a folder beside the store that
// the store itself does not read: nothing is ever removed from the history, so what was not wanted
// would stay in it. The folder has one of two names. As long as it is incoming, nobody needs
// it, and it is removed when it is not wanted and when the engine starts. A decision that
// is to add it to the store renames it to adopted before, and removes it after.
const (
	quarantineIncoming = "incoming-"
	QuarantineAdopted  = "adopted-"
)

// MakeQuarantine makes a quarantine and returns a store that writes to it. That
// store also reads everything that is in s, and may be used while s is; it has no refs and
// no journal, and is durable only when Adopt has returned. There must be no folder of that
// name.
func (s *Store) MakeQuarantine(name string) (*Store, error) {
	dir := s.Work(quarantineIncoming + name)
	if err := os.Mkdir(dir, 0o755); err != nil {
		return nil, err
	}
	err := errors.Join(os.Mkdir(filepath.Join(dir, "pack"), 0o755), os.Mkdir(filepath.Join(dir, "info"), 0o755))
	if err == nil {
		// It is read relative to the folder, so no name of the tree has to be written in it.
		err = os.WriteFile(filepath.Join(dir, "info", "alternates"), []byte("../../objects\n"), 0o644)
	}
	if err != nil {
		return nil, errors.Join(err, disk.RemoveTree(dir))
	}
	return s.OpenQuarantine(name)
}

// OpenQuarantine returns a store for a folder that MakeQuarantine made. Errors: fault.NotFound.
func (s *Store) OpenQuarantine(name string) (*Store, error) {
	b := &Store{
		root: s.root, gitDir: s.gitDir, objects: s.Work(quarantineIncoming + name), quarantine: true, fileBytes: s.fileBytes, known: map[string]bool{},
		journal: s.journal, crash: s.crash, Chunks: s.Chunks,
	}
	if there, err := disk.Exists(b.objects); err != nil {
		return nil, err
	} else if !there {
		return nil, fault.New("keeper.quarantine", fault.NotFound, "Do it again.", errors.New("what came is not there any more"))
	}
	b.git = s.git.WithObjectDir(b.objects)
	b.reads, b.names = git.NewReader(b.git), git.NewReader(b.git)
	return b, nil
}

// CloseQuarantine ends the helper processes of a store that MakeQuarantine or OpenQuarantine returned.
func (s *Store) CloseQuarantine() error { return s.endReaders() }

// QuarantinePath is the path of a file in the folder of a store that MakeQuarantine or OpenQuarantine
// returned.
func (s *Store) QuarantinePath(name string) string { return filepath.Join(s.objects, name) }

// DropQuarantine removes a quarantine if it is there and not to be adopted.
func (s *Store) DropQuarantine(name string) error {
	return disk.RemoveTree(s.Work(quarantineIncoming + name))
}

// PackQuarantined writes objects to the quarantine as one pack.
func (s *Store) PackQuarantined(ctx context.Context, objects []objects.Object) ([]string, error) {
	return s.writePack(ctx, objects)
}

// Adopt adds what a quarantine holds to the act under way, which may name the
// commit. Packs stay where they are, durable, under the name QuarantineAdopted: the act has to
// record that they are wanted.
func (s *Store) Adopt(ctx context.Context, name, commit string) error {
	b, err := s.OpenQuarantine(name)
	if err != nil {
		return err
	}
	loose, err := b.loose()
	if err == nil && len(loose) > looseLimit {
		var ids bytes.Buffer
		apart := loose[:0]
		for _, p := range loose {
			id := filepath.Base(filepath.Dir(p)) + filepath.Base(p)
			if id == commit { // nothing in a pack can be named before the pack is in the store
				apart = append(apart, p)
				continue
			}
			ids.WriteString(id + "\n")
		}
		_, err = b.Git(ctx, &ids, "pack-objects", "-q", "--window=0", b.QuarantinePath("pack/pack"))
		loose = apart
	}
	if err = errors.Join(err, b.CloseQuarantine()); err != nil {
		return err
	}
	to := s.Work(QuarantineAdopted + name)
	if err := errors.Join(durable.SyncDir(b.QuarantinePath("pack")), durable.SyncDir(b.objects)); err != nil {
		return err
	}
	if err := os.Rename(b.objects, to); err != nil {
		return err
	}
	if err := durable.SyncDir(s.Work()); err != nil {
		return err
	}
	for _, p := range loose {
		in := filepath.Join(filepath.Base(filepath.Dir(p)), filepath.Base(p))
		s.act.objects = append(s.act.objects, pendingObject{filepath.Join(to, in), filepath.Join(s.objects, in)})
	}
	s.crash("push.renamed")
	return nil
}

// loose lists the objects that are files of their own.
func (s *Store) loose() ([]string, error) {
	dirs, err := os.ReadDir(s.objects)
	var out []string
	for _, d := range dirs {
		if len(d.Name()) != 2 || !d.IsDir() {
			continue
		}
		files, ferr := os.ReadDir(s.QuarantinePath(d.Name()))
		err = errors.Join(err, ferr)
		for _, f := range files {
			out = append(out, filepath.Join(s.objects, d.Name(), f.Name()))
		}
	}
	return out, err
}
