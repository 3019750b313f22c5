package gitstore

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"syscall"

	"choir.dev/choiros/internal/durable"
	"choir.dev/choiros/internal/workspace/keeper/git"
	"choir.dev/choiros/internal/workspace/keeper/objects"
)

// writePack writes objects as one pack that has each of them once, whatever files have the same
// content: git takes a pack that has one twice, and later says that its index of packs is damaged.
// Files that go on becoming the same as others while they are read are written one by one.
func (s *Store) writePack(ctx context.Context, given []objects.Object) ([]string, error) {
	for range 3 {
		d, err := objects.FindDistinct(ctx, given)
		if err != nil {
			return nil, err
		}
		ids, err := s.indexPack(ctx, d.Objects)
		if err != nil && !errors.Is(err, objects.ErrTwice) {
			return nil, err
		}
		if all, whole := d.All(ids); err == nil && whole {
			return all, nil
		}
	}
	return s.writeLoose(ctx, given)
}

// indexPack streams objects as one pack into git index-pack, which checks it and,
// but for a first commit, syncs it. It is objects.ErrTwice, and nothing is kept, if two are the same.
func (s *Store) indexPack(ctx context.Context, given []objects.Object) (_ []string, failed error) {
	if err := s.counts(); err != nil {
		return nil, err
	}
	cmd := s.git.Command(ctx, "index-pack", "--stdin")
	if s.first {
		cmd.Env = append(cmd.Env, git.Unsynced)
	}
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	var stderr bytes.Buffer
	cmd.Stderr = &git.PrefixBuffer{Max: 16 << 10, To: &stderr}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	ids, werr := objects.WritePack(ctx, stdin, given)
	werr = errors.Join(werr, stdin.Close())
	if err := cmd.Wait(); err != nil {
		if !s.quarantine { // otherwise its folder goes as a whole
			defer func() { failed = errors.Join(failed, s.RemoveAll(TornPacks)) }()
		}
		if errors.Is(werr, objects.ErrTwice) {
			return nil, werr
		}
		if werr != nil && !errors.Is(werr, os.ErrClosed) && !errors.Is(werr, syscall.EPIPE) && stderr.Len() == 0 {
			return nil, werr
		}
		return nil, s.git.Failed(ctx, []string{"index-pack"}, stderr.String(), err)
	}
	if werr != nil || s.first {
		return ids, werr
	}
	return ids, durable.SyncDir(filepath.Join(s.objects, "pack"))
}
