package engine_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"choir.dev/choiros/internal/workspace/keeper/engine"
	"choir.dev/choiros/internal/workspace/keeper/wire"
)

// settleChild is the process that TestAcknowledgedFilesAreSynced follows. It writes as a command
// does, and acknowledges with a line on its standard output.
func settleChild(mode, dir string) error {
	ctx := context.Background()
	root := filepath.Join(dir, "live")
	for _, d := range []string{root, filepath.Join(dir, "s"), filepath.Join(dir, "u")} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			return err
		}
	}
	e, err := engine.Open(ctx, engine.Options{Root: root, Snapshots: filepath.Join(dir, "s"), Uppers: filepath.Join(dir, "u"), Limits: wire.Limits{FileBytes: large}})
	if err != nil {
		return err
	}
	for round := range 4 {
		for i := range 3 {
			name := filepath.Join(root, "sub", fmt.Sprintf("file%d", i))
			if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
				return err
			}
			// The last round writes what is there already. A checkpoint sees no change there, and
			// on disk it is one.
			if err := os.WriteFile(name, []byte(fmt.Sprintf("round %d\n", min(round, 2))), 0o644); err != nil {
				return err
			}
		}
		switch mode {
		case "settle":
			err = e.Settle(ctx)
		case "checkpoint":
			_, err = e.Checkpoint(ctx, wire.CheckpointRequest{})
		case "large checkpoint":
			if err = os.WriteFile(filepath.Join(root, "sub", "large"), []byte(noise(byte(round), 3<<20)), 0o644); err == nil {
				_, err = e.Checkpoint(ctx, wire.CheckpointRequest{})
			}
		case "large put":
			_, err = e.Write(ctx, wire.WriteRequest{Path: "sub/large"}, strings.NewReader(noise(byte(round), 3<<20)))
		}
		if err != nil {
			return err
		}
		if _, err := os.Stdout.WriteString("ACK\n"); err != nil {
			return err
		}
	}
	return e.Close()
}

// TestAcknowledgedFilesAreSynced follows the system calls of an engine. When a checkpoint is made,
// a large file is put, or Settle says that a command's end may be told, every file and chunk that
// was written must have been synced since.
func TestAcknowledgedFilesAreSynced(t *testing.T) {
	strace, err := exec.LookPath("strace")
	if err != nil {
		t.Fatal("this test needs strace: install it, for example with: apt-get install strace")
	}
	for _, test := range []struct {
		mode   string
		prefix string
		want   bool
	}{
		{"settle", "sub/", true},
		{"checkpoint", "sub/", true},
		{"large checkpoint", "sub/", true},
		{"large checkpoint", ".git/choir/chunks/", true},
		{"large put", ".git/choir/chunks/", true},
		{"nothing", "sub/", false},
	} {
		t.Run(test.mode+" "+test.prefix, func(t *testing.T) {
			dir := t.TempDir()
			trace := filepath.Join(dir, "trace")
			cmd := exec.CommandContext(t.Context(), strace, "-f", "-y", "-s", "16", "-o", trace, "-e", "trace=write,pwrite64,fsync,fdatasync,syncfs", os.Args[0])
			cmd.Env = append(os.Environ(), "KEEPER_SETTLE="+test.mode, "KEEPER_SETTLE_DIR="+dir)
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Fatalf("strace: %v\n%s", err, out)
			}
			acks, early := unsyncedAtAck(t, trace, dir+"/live/"+test.prefix)
			if acks != 4 || (early == 0) != test.want {
				t.Errorf("%d of %d acknowledgements came before a sync", early, acks)
			}
		})
	}
}

var syscallLine = regexp.MustCompile(`^\d+ +(\w+)\((\d+)<([^>]*)>(.*)$`)

// unsyncedAtAck counts acknowledgements, and those at which a file under prefix, or the names in
// the directory itself, had changes that no sync followed.
func unsyncedAtAck(t *testing.T, trace, prefix string) (acks, early int) {
	t.Helper()
	f, err := os.Open(trace)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	dirty := map[string]bool{}
	for s := bufio.NewScanner(f); s.Scan(); {
		m := syscallLine.FindStringSubmatch(s.Text())
		if m == nil {
			continue // the rest of a call that another thread interrupted
		}
		switch m[1] {
		case "write", "pwrite64":
			if m[2] == "1" && strings.Contains(m[4], `"ACK`) {
				acks++
				if len(dirty) > 0 {
					early++
				}
				clear(dirty)
			} else if strings.HasPrefix(m[3], prefix) {
				dirty[m[3]] = true
			}
		case "fsync", "fdatasync":
			delete(dirty, m[3])
		case "syncfs":
			clear(dirty)
		}
	}
	return acks, early
}

// TestWhatAnUncleanEndEmptiedIsPutBack damages files as a power cut does after which the keeper did
// not end cleanly. They must be put back and reported, what they had become must be in the trash,
// and what somebody emptied on purpose must stay empty.
func TestWhatAnUncleanEndEmptiedIsPutBack(t *testing.T) {
	text := strings.Repeat("a line of somebody's work\n", 1000)
	files := map[string]string{"emptied": "work\n", "zeroed": text, "torn": text, "meant": "to go\n", "put": "to go\n", "zeroes": "\x00\x00\x00", "edited": "one\n", "whole": "as it was\n"}
	damage := func(c *computer) {
		c.write("emptied", "")
		c.write("zeroed", strings.Repeat("\x00", len(text)))
		c.write("torn", "a newer beginning\n"+text[:4000]+strings.Repeat("\x00", 3*4096))
		c.write("zeroes", "\x00\x00\x00\x00\x00")
		c.write("edited", "two\n")
	}
	for _, clean := range []bool{false, true} {
		t.Run(fmt.Sprintf("clean %v", clean), func(t *testing.T) {
			c := open(t)
			for p, content := range files {
				c.write(p, content)
			}
			first := c.checkpoint("whole")
			c.write("meant", "")
			if err := c.Settle(t.Context()); err != nil {
				t.Fatal(err)
			}
			if _, err := c.Write(t.Context(), wire.WriteRequest{Path: "put"}, strings.NewReader("")); err != nil {
				t.Fatal(err)
			}
			if err := c.Close(); err != nil {
				t.Fatal(err)
			}
			c.Engine = nil
			if !clean {
				c.write(".git/choir/open", "another boot")
			}
			damage(c)
			c.reopen()
			h, err := c.Heal(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if clean {
				if len(h.Healed) > 0 || c.read("emptied") != "" {
					t.Errorf("after a clean end it put back %+v", h.Healed)
				}
				return
			}
			var got []string
			for _, f := range h.Healed {
				got = append(got, string(f.Path)+" "+f.Reason)
			}
			want := []string{"emptied was emptied", "torn ends in zeroes", "zeroed was filled with zeroes"}
			if strings.Join(got, ", ") != strings.Join(want, ", ") || len(h.Lost) > 0 || h.Checkpoint != first.Commit.Commit {
				t.Errorf("put back %v, lost %v from %s; want %v", got, h.Lost, h.Checkpoint, want)
			}
			for p, content := range map[string]string{"emptied": "work\n", "zeroed": text, "torn": text, "meant": "", "put": "", "edited": "two\n", "whole": "as it was\n"} {
				if c.read(p) != content {
					t.Errorf("%s holds %.40q; want %.40q", p, c.read(p), content)
				}
			}
			if !strings.HasPrefix(trashed(t, c)["torn"], "a newer beginning\n") {
				t.Error("the newer beginning of a torn file is lost")
			}
			if again, err := c.Heal(t.Context()); err != nil || len(again.Healed) > 0 {
				t.Errorf("again: %+v, %v", again, err)
			}
		})
	}
}

// TestHealingSaysWhatItCantPutBack damages the checkpoint's copy as well.
func TestHealingSaysWhatItCantPutBack(t *testing.T) {
	c := open(t)
	c.torn = true
	c.write("a", "a\n")
	c.write("b", "b\n")
	c.checkpoint("both")
	id := strings.TrimSpace(stockGit(t, c.opts.Root, "rev-parse", "HEAD:a"))
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	c.Engine = nil
	if err := errors.Join(os.Remove(c.path(".git/objects/"+id[:2]+"/"+id[2:])), os.WriteFile(c.path(".git/choir/open"), nil, 0o644)); err != nil {
		t.Fatal(err)
	}
	c.write("a", "")
	c.write("b", "")
	c.reopen()
	h, err := c.Heal(t.Context())
	if err != nil || len(h.Healed) != 1 || h.Healed[0].Path != "b" || len(h.Lost) != 1 || h.Lost[0].Path != "a" {
		t.Errorf("healed %+v, %v", h, err)
	}
}
