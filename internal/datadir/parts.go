package datadir

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/fault"
)

// partsFile lists the parts that the directory had when its computers last woke, so that a
// missing part is recognised as missing instead of being taken for new. It exists from
// format 2 on.
const partsFile = "parts"

// control is the file of accounts and sessions.
const control = "control.sqlite"

// controlHead says beside it how many changes it has had.
const controlHead = "control.head"

// chunksDir is where the keeper stores the chunks of large files, below a workspace.
const chunksDir = ".git/choir/chunks"

// Chunks returns that directory of a computer, in the form of a part.
func Chunks(cid contract.CID) string {
	return filepath.Join("computers", string(cid), "workspace", chunksDir)
}

// Parts returns the listed paths, relative to the directory; nil when there is no list yet.
// The error is fault.Damaged when the list is missing although the format requires one, or
// when its checksum is wrong.
func (d *Dir) Parts() ([]string, error) {
	const op = "datadir.Parts"
	b, err := os.ReadFile(d.Path(partsFile))
	if errors.Is(err, fs.ErrNotExist) {
		if d.format >= 2 {
			return nil, fault.New(op, fault.Damaged, recoverHint, fmt.Errorf("%s, the list of what was there, is gone", partsFile))
		}
		return nil, nil
	}
	if err != nil {
		return nil, diskError(op, d.path, err)
	}
	body, sum, ok := strings.Cut(string(b), "sum ")
	if !ok || strings.TrimSpace(sum) != partsSum(body) {
		return nil, fault.New(op, fault.Damaged, recoverHint, fmt.Errorf("%s, the list of what was there, does not hold together", partsFile))
	}
	return strings.Fields(body), nil
}

const recoverHint = "Run choir recover: it says what is missing and goes on with what is there."

func partsSum(body string) string {
	sum := sha256.Sum256([]byte(body))
	return hex.EncodeToString(sum[:])
}

// Missing returns the parts that no longer exist.
func (d *Dir) Missing(parts []string) ([]string, error) {
	var out []string
	for _, p := range parts {
		if !filepath.IsLocal(p) {
			return nil, fault.New("datadir.Missing", fault.Damaged, recoverHint, fmt.Errorf("%s names %q", partsFile, p))
		}
		if _, err := os.Lstat(d.Path(p)); errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) { // ENOTDIR: a parent is no folder any more
			out = append(out, p)
		} else if err != nil {
			return nil, diskError("datadir.Missing", d.path, err)
		}
	}
	return out, nil
}

// Mark updates the list of parts: those that all computers share, and those of the given
// computers. The entries of other computers stay.
func (d *Dir) Mark(awake ...contract.CID) error {
	d.marking.Lock()
	defer d.marking.Unlock()
	return d.mark(awake...)
}

func (d *Dir) mark(awake ...contract.CID) error {
	const op = "datadir.Mark"
	old, err := d.Parts()
	if err != nil && !fault.Is(err, fault.Damaged) {
		return err
	}
	parts := []string{control, "nats", "keys", "blobs", "computers"}
	keys, err := os.ReadDir(d.Path("keys"))
	if err != nil {
		return diskError(op, d.path, err)
	}
	for _, k := range keys {
		if k.Type().IsRegular() && !strings.HasPrefix(k.Name(), ".") && k.Name() != "api-token" && !strings.ContainsAny(k.Name(), " \n\t") {
			parts = append(parts, filepath.Join("keys", k.Name()))
		}
	}
	for _, p := range old {
		cid, _, ok := strings.Cut(strings.TrimPrefix(strings.TrimPrefix(p, "computers/"), "blobs/"), "/")
		if (ok || strings.HasPrefix(p, "blobs/")) && contract.CID(cid).Validate() == nil && !slices.Contains(awake, contract.CID(cid)) {
			parts = append(parts, p)
		}
	}
	for _, cid := range awake {
		at := filepath.Join("computers", string(cid))
		for _, p := range []string{"log.head", "workspace", "workspace/.git", "workspace/.git/HEAD", "workspace/.git/refs/heads/main", "workspace/" + chunksDir} {
			parts = append(parts, filepath.Join(at, p))
		}
		parts = append(parts, filepath.Join("blobs", string(cid)))
	}
	missing, err := d.Missing(parts)
	if err != nil {
		return err
	}
	parts = slices.DeleteFunc(parts, func(p string) bool { return slices.Contains(missing, p) && !slices.Contains(old, p) })
	slices.Sort(parts)
	parts = slices.Compact(parts)
	if d.format == Format && slices.Equal(parts, old) {
		return nil
	}
	return d.list(parts)
}

// list writes the list of parts.
func (d *Dir) list(parts []string) error {
	body := strings.Join(parts, "\n") + "\n"
	write := WriteFile
	if d.making {
		write = WritePassing
	}
	if err := write(d.Path(partsFile), []byte(body+"sum "+partsSum(body)+"\n"), 0o600); err != nil {
		return err
	}
	return d.setFormat(Format)
}

// Forget removes parts from the list, and everything in them, because they can't be
// recovered.
func (d *Dir) Forget(gone []string) error {
	d.marking.Lock()
	defer d.marking.Unlock()
	old, err := d.Parts()
	if err != nil && !fault.Is(err, fault.Damaged) {
		return err
	}
	parts := slices.DeleteFunc(slices.Clone(old), func(p string) bool {
		return slices.ContainsFunc(gone, func(g string) bool { return p == g || strings.HasPrefix(p, g+"/") })
	})
	return d.list(parts)
}

// Known returns the computers that the list names.
func Known(parts []string) []contract.CID {
	var out []contract.CID
	for _, p := range parts {
		rest, ok := strings.CutPrefix(p, "computers/")
		cid, _, deep := strings.Cut(rest, "/")
		if ok && deep && contract.CID(cid).Validate() == nil && !slices.Contains(out, contract.CID(cid)) {
			out = append(out, contract.CID(cid))
		}
	}
	return out
}
