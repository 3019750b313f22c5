package workspace_test

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/workspace"
)

func TestFiles(t *testing.T) {
	h := newHost(t)
	ctx := t.Context()
	by := workspace.WriteOptions{}
	wr, err := h.Write(ctx, "workspace/new/file.txt", strings.NewReader("one\r\n"), by)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := h.Write(ctx, "workspace/new/file.txt", strings.NewReader("two\n"), workspace.WriteOptions{If: strings.Repeat("0", 40)}); !fault.Is(err, fault.Conflict) {
		t.Errorf("a stale write: %v", err)
	}
	over, err := h.Write(ctx, "workspace/new/file.txt", strings.NewReader("two\n"), workspace.WriteOptions{If: wr.ID})
	if err != nil || over.Trash == "" {
		t.Fatalf("overwrite = %+v, %v", over, err)
	}
	c, err := h.Read(ctx, "", "workspace/new/file.txt", 1, 2)
	if err != nil {
		t.Fatal(err)
	}
	if b, err := io.ReadAll(c); err != nil || string(b) != "wo" || c.Size != 4 {
		t.Errorf("range = %q of %d, %v", b, c.Size, err)
	}
	c.Close()
	trashed, err := h.Remove(ctx, "workspace/new", "", contract.Person(""))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := h.Stat(ctx, "workspace/new"); !fault.Is(err, fault.NotFound) {
		t.Errorf("removed: %v", err)
	}
	if _, err := h.Untrash(ctx, trashed.ID, "", contract.Person("")); err != nil || h.live("workspace/new/file.txt") != "two\n" {
		t.Errorf("untrash: %v", err)
	}
	// Links are not followed.
	for name, target := range map[string]string{"out": "/etc", "git": "../.git", "up": "../../.."} {
		if err := os.Symlink(target, filepath.Join(h.dir, "workspace/workspace", name)); err != nil {
			t.Fatal(err)
		}
	}
	for _, p := range []string{"workspace/out/passwd", "workspace/up/x", "../x", "/etc/passwd", ".git/config", "workspace/git/config"} {
		if _, err := h.Write(ctx, p, strings.NewReader("x"), by); err == nil {
			t.Errorf("wrote %q", p)
		}
		if _, err := h.Remove(ctx, p, "", contract.Person("")); err == nil {
			t.Errorf("removed %q", p)
		}
		if c, err := h.Read(ctx, "", p, 0, 0); err == nil && p != "workspace/git/config" {
			c.Close()
			t.Errorf("read %q", p)
		}
	}
}

func TestAddRefusesHostileArchives(t *testing.T) {
	h := newHost(t)
	ctx := t.Context()
	archive := func(headers ...tar.Header) io.Reader {
		var b bytes.Buffer
		w := tar.NewWriter(&b)
		for _, hd := range headers {
			if hd.Typeflag == tar.TypeReg {
				hd.Size = 2
			}
			if err := w.WriteHeader(&hd); err != nil {
				t.Fatal(err)
			}
			if hd.Typeflag == tar.TypeReg {
				if _, err := w.Write([]byte("x\n")); err != nil {
					t.Fatal(err)
				}
			}
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		return &b
	}
	reg := func(name string) tar.Header { return tar.Header{Name: name, Typeflag: tar.TypeReg, Mode: 0o6755} }
	for name, a := range map[string]io.Reader{
		"traversal":    archive(reg("../../evil")),
		"absolute":     archive(reg("/etc/evil")),
		"through link": archive(tar.Header{Name: "l", Typeflag: tar.TypeSymlink, Linkname: "/tmp"}, reg("l/evil")),
		"hard link":    archive(tar.Header{Name: "l", Typeflag: tar.TypeLink, Linkname: "../../../.git/config"}),
		"twice":        archive(reg("a"), reg("a")),
		"no tar":       strings.NewReader(strings.Repeat("not a tar", 200)),
	} {
		if im, err := h.Add(ctx, workspace.AddRequest{Name: "bad", Origin: "x"}, a); err == nil {
			t.Errorf("%s: %+v", name, im)
		}
	}
	if _, err := os.Lstat(filepath.Join(h.dir, "workspace/workspace/bad")); err == nil {
		t.Error("half an archive is in the tree")
	}
	h.log.reset()
	id := strings.Repeat("ab", 20)
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for n, content := range map[string]string{".git/HEAD": "ref: refs/heads/x\n", ".git/refs/heads/x": id + "\n", "run.sh": "#!/bin/sh\n"} {
		if err := w.WriteHeader(&tar.Header{Name: n, Typeflag: tar.TypeReg, Size: int64(len(content)), Mode: 0o755}); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte(content)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	im, err := h.Add(ctx, workspace.AddRequest{Name: "good", Origin: "/home/me/good"}, &b)
	if err != nil || im.Files != 3 || im.Commit != id {
		t.Errorf("good = %+v, %v", im, err)
	}
	if got := h.log.types(); got != "repository.added checkpoint.created" {
		t.Errorf("log: %s", got)
	}
	for _, n := range []string{"../x", ".git", "a/b", ""} {
		if _, err := h.Add(ctx, workspace.AddRequest{Name: n, Origin: "x"}, archive(reg("a"))); !fault.Is(err, fault.Invalid) {
			t.Errorf("name %q: %v", n, err)
		}
	}
}

// TestSlowReadersKeepOnlyReadersWaiting has many readers open a file and read nothing. Files are listed
// and put meanwhile; one reader more waits until another has left.
func TestSlowReadersKeepOnlyReadersWaiting(t *testing.T) {
	h := newHost(t)
	var open []*workspace.Content
	for range workspace.MaxReads {
		c, err := h.OpenFile(t.Context(), "workspace/a", 0)
		if err != nil {
			t.Fatal(err)
		}
		open = append(open, c)
	}
	short, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if _, err := h.OpenFile(short, "workspace/a", 0); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("one more than may be open: %v", err)
	}
	if _, _, err := h.Files(t.Context(), "workspace", "", 0); err != nil {
		t.Error(err)
	}
	if _, err := h.Write(t.Context(), "workspace/b", strings.NewReader("b"), workspace.WriteOptions{}); err != nil {
		t.Error(err)
	}
	for range 2 { // closed twice, it leaves one place
		if err := open[0].Close(); err != nil {
			t.Error(err)
		}
	}
	c, err := h.OpenFile(t.Context(), "workspace/a", 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range append(open[1:], c) {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}
}
