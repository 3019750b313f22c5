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
// Files that become the same as others while they are read, or stop to be, are written beside it.
func (s *Store) writePack(ctx context.Context, given []objects.Object) ([]string, error) {
	ids := make([]string, len(given))
	apart := make([]bool, len(given)) // what was unsteady
	for range packTries {
		var steady []int
		var those []objects.Object
		for i, o := range given {
			if !apart[i] {
				steady, those = append(steady, i), append(those, o)
			}
		}
		d, err := objects.FindDistinct(ctx, those)
		if err != nil {
			return nil, err
		}
		wrote, err := s.indexPack(ctx, d.Objects)
		var twice *objects.Twice
		if errors.As(err, &twice) {
			for _, at := range twice.At {
				apart[steady[d.Given(at)]] = true
			}
			continue
		}
		if err != nil {
			return nil, err
		}
		all, moved := d.All(wrote)
		for i, id := range all {
			ids[steady[i]] = id
		}
		for _, i := range moved {
			apart[steady[i]] = true
		}
		return ids, s.writeApart(ctx, given, apart, ids)
	}
	// There are ever more. In two packs they may be the same.
	half := len(given) / 2
	first, err := s.Write(ctx, given[:half])
	if err != nil {
		return nil, err
	}
	second, err := s.Write(ctx, given[half:])
	return append(first, second...), err
}

// packTries is how often a pack is begun anew without what was unsteady in the tries before. Each
// takes a time in which another file may become the same as one.
const packTries = 8

// writeApart writes those objects that a pack was made without, which are fewer.
func (s *Store) writeApart(ctx context.Context, given []objects.Object, apart []bool, ids []string) error {
	var which []int
	var those []objects.Object
	for i, o := range given {
		if apart[i] {
			which, those = append(which, i), append(those, o)
		}
	}
	wrote, err := s.Write(ctx, those)
	for n, id := range wrote {
		ids[which[n]] = id
	}
	return err
}

// indexPack streams objects as one pack into git index-pack, which checks it and,
// but for a first commit, syncs it. It is an *objects.Twice, and nothing is kept, if some are the same.
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
		var twice *objects.Twice
		if errors.As(werr, &twice) {
			if err := s.RemoveAll(TornPacks); err != nil { // of another try there may be no room
				return nil, err
			}
			return nil, twice
		}
		if !s.quarantine { // otherwise its folder goes as a whole
			defer func() { failed = errors.Join(failed, s.RemoveAll(TornPacks)) }()
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
