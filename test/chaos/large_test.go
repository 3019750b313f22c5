package chaos_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"choir.dev/choiros/internal/view"
)

// The large file exceeds 100 MiB, so the history stores it as chunks beside git's objects. Most of
// it is a hole, so it needs little space and few chunks.
const (
	largePath  = "workspace/large"
	largeHead  = 3_000_000
	largeBytes = 101 << 20
)

// largeSaid is a version of the large file, by its SHA-256: when it was begun and, if it was,
// acknowledged.
type largeSaid struct {
	sum                 string
	begun, acknowledged int
}

// larges makes versions of the large file with commands, and a checkpoint of each.
func larges(ctx context.Context, w *world, _ *rand.Rand) error {
	word := "large " + w.next()
	h := sha256.New()
	_, _ = io.WriteString(h, strings.Repeat(word+"\n", largeHead/(len(word)+1)+1)[:largeHead])
	_, _ = h.Write(make([]byte, largeBytes-largeHead))
	_, _ = io.WriteString(h, "end\n")
	said := &largeSaid{sum: hex.EncodeToString(h.Sum(nil)), begun: w.witness.clock()}
	w.mu.Lock()
	w.large = append(w.large, said)
	w.mu.Unlock()
	script := fmt.Sprintf("yes '%s' | head -c %d >%s.new && truncate -s %d %[3]s.new && echo end >>%[3]s.new && mv %[3]s.new %[3]s", word, largeHead, largePath, largeBytes)
	var out bytes.Buffer
	exit, err := w.c.Exec(ctx, view.ExecRequest{Argv: []string{"sh", "-c", script}}, view.ExecIO{Stdout: &out, Stderr: &out})
	if err != nil {
		return err
	}
	if exit.Code != 0 {
		return fmt.Errorf("the large file: exit %d: %s", exit.Code, out.String())
	}
	w.witness.commanded(exit.Command, exit.Code, exit.Sequence)
	w.mu.Lock()
	said.acknowledged = w.witness.clock()
	w.mu.Unlock()
	k, err := w.c.Checkpoint(ctx, "with a large file")
	if err != nil {
		return err
	}
	w.witness.large(k.ID, said.sum)
	return nil
}

// largeUntil returns what was known of the large file at an instant.
func largeUntil(all []*largeSaid, at int) (then []*largeSaid) {
	for _, s := range all {
		if s.begun > at {
			continue
		}
		known := *s
		if known.acknowledged > at {
			known.acknowledged = 0
		}
		then = append(then, &known)
	}
	return then
}

// checkLarge compares the live large file with what was acknowledged.
func (w *world) checkLarge() error {
	last := -1
	for i, s := range w.large {
		if s.acknowledged > 0 {
			last = i
		}
	}
	if last < 0 {
		return nil
	}
	f, err := os.Open(filepath.Join(w.data, "computers", string(w.cid), "workspace", largePath))
	if err != nil {
		return fmt.Errorf("the large file was acknowledged: %w", err)
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return err
	}
	got := hex.EncodeToString(h.Sum(nil))
	if !slices.ContainsFunc(w.large[last:], func(s *largeSaid) bool { return s.sum == got }) {
		return fmt.Errorf("the large file is %.12s, and %.12s was acknowledged", got, w.large[last].sum)
	}
	return nil
}

// haveLarge reads the large file of a commit from its manifest and chunks on the disk.
func haveLarge(gitDir, commit, sum string) error {
	raw, err := git(gitDir, "cat-file", "blob", commit+":"+largePath+".chunks.choir").Output()
	if err != nil {
		return fmt.Errorf("the manifest of the large file in %s: %w", commit, err)
	}
	const head = 16 + 8 + sha256.Size + 4
	if len(raw) < head || (len(raw)-head)%36 != 0 {
		return fmt.Errorf("the manifest of the large file in %s has %d bytes", commit, len(raw))
	}
	whole, size, errs := sha256.New(), 0, []error(nil)
	for ref := raw[head:]; len(ref) > 0; ref = ref[36:] {
		name := hex.EncodeToString(ref[4:36])
		b, err := os.ReadFile(filepath.Join(gitDir, "choir/chunks", name[:2], name))
		if got := sha256.Sum256(b); err != nil || hex.EncodeToString(got[:]) != name || len(b) != int(ref[0])<<24|int(ref[1])<<16|int(ref[2])<<8|int(ref[3]) {
			errs = append(errs, fmt.Errorf("chunk %s of checkpoint %s: %d bytes, %w", name, commit, len(b), err))
		}
		_, _ = whole.Write(b)
		size += len(b)
	}
	if got := hex.EncodeToString(whole.Sum(nil)); got != sum {
		errs = append(errs, fmt.Errorf("the large file in %s is %.12s of %d bytes, it was %.12s", commit, got, size, sum))
	}
	return errors.Join(errs...)
}
