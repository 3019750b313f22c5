package engine_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"choir.dev/choiros/internal/workspace/keeper/wire"
	"pgregory.net/rapid"
)

// everything returns the content of every blob that some ref reaches, and of every file in the live
// tree or moved aside.
func everything(t testing.TB, c *computer) string {
	t.Helper()
	var all strings.Builder
	ids := stockGit(t, c.opts.Root, "rev-list", "--all", "--objects", "--no-object-names", "--filter=object:type=blob")
	for id := range strings.FieldsSeq(ids) {
		if kind := stockGit(t, c.opts.Root, "cat-file", "-t", id); kind == "blob\n" {
			all.WriteString(stockGit(t, c.opts.Root, "cat-file", "blob", id))
		}
	}
	for _, content := range picture(t, c.opts.Root) {
		all.WriteString(content)
	}
	for _, content := range picture(t, c.path(".git/choir")) {
		all.WriteString(content)
	}
	return all.String()
}

// TestARacingWriterNeverLosesAnEdit has the user write in both ways in which programs write,
// replacing by rename and through a descriptor held open, while publishes and restores go on. The
// last content written to each file, and every line appended through the descriptor, must be found
// afterwards.
func TestARacingWriterNeverLosesAnEdit(t *testing.T) {
	c := open(t)
	const files = 4
	for i := range files {
		c.write(fmt.Sprintf("workspace/f%d", i), "base\n\n\n\n\n\n\n\n\n\n\nend\n")
	}
	c.write("workspace/log", "")
	first := c.begin("t0")
	var wg sync.WaitGroup
	stop := make(chan struct{})
	last := make([]string, files)
	for i := range files {
		wg.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-stop:
					return
				default:
				}
				word := fmt.Sprintf("<user %d wrote %d>", i, n)
				tmp := c.path(fmt.Sprintf(".git/save%d", i)) // an editor's temporary file, where the scan does not go
				if os.WriteFile(tmp, []byte(word+"\n\n\n\n\n\n\n\n\n\n\nend\n"), 0o644) != nil || os.Rename(tmp, c.path(fmt.Sprintf("workspace/f%d", i))) != nil {
					t.Error("the writer failed")
					return
				}
				last[i] = word
			}
		})
	}
	appended := 0
	lines := make(chan struct{}, 40) // a share for each round, so that the file stays small
	held, err := os.OpenFile(c.path("workspace/log"), os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		t.Fatal(err)
	}
	wg.Go(func() {
		for {
			select {
			case <-stop:
				return
			case <-lines:
			}
			if _, err := fmt.Fprintf(held, "line %d;\n", appended); err != nil {
				t.Error(err)
				return
			}
			appended++
		}
	})
	for n := range 12 {
		for range cap(lines) {
			lines <- struct{}{}
		}
		k := c.begin(fmt.Sprintf("t%d", n+1))
		for i := range files {
			k.write(fmt.Sprintf("workspace/f%d", i), fmt.Sprintf("base\n\n\n\n\n\n\n\n\n\n\nend of task %d\n", n))
		}
		k.write("workspace/log", fmt.Sprintf("the task's %d\n", n))
		if n%4 == 3 {
			k.whiteout("workspace/f0x")
		}
		k.publish()
		if n%3 == 2 {
			c.restore(wire.RestoreRequest{ID: fmt.Sprintf("r%d", n), To: first.base})
		}
	}
	close(stop)
	wg.Wait()
	if err := held.Close(); err != nil {
		t.Fatal(err)
	}
	c.checkpoint("at rest")
	c.checkpoint("and once more")
	all := everything(t, c)
	for i := range files {
		if !strings.Contains(all, last[i]) {
			t.Errorf("f%d: %s is lost; the file is %.80q", i, last[i], c.read(fmt.Sprintf("workspace/f%d", i)))
		}
	}
	for n := range appended {
		if !strings.Contains(all, fmt.Sprintf("line %d;\n", n)) {
			t.Fatalf("line %d of %d, written through an open descriptor, is lost", n, appended)
		}
	}
}

// TestALateWriterIsHeard writes to a file through a descriptor that was opened before the publish
// that displaced it.
func TestALateWriterIsHeard(t *testing.T) {
	c := open(t)
	c.write("workspace/a", "1\n2\n3\n4\n5\n6\n7\n")
	c.write("workspace/b", "b\n")
	k := c.begin("t1")
	k.write("workspace/a", "1\n2\n3\n4\n5\n6\nseven\n")
	k.write("workspace/b", "task\n")
	a, err := os.OpenFile(c.path("workspace/a"), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	b, err := os.OpenFile(c.path("workspace/b"), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	k.publish()
	c.checkpoint("still open")
	if _, err := a.WriteAt([]byte("I"), 0); err != nil {
		t.Fatal(err)
	}
	if _, err := b.WriteAt([]byte("user\n"), 0); err != nil {
		t.Fatal(err)
	}
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	c.checkpoint("looks again")
	if got := c.read("workspace/a"); got != "I\n2\n3\n4\n5\n6\nseven\n" {
		t.Errorf("what merges is merged: %q", got)
	}
	if got := c.read("workspace/b"); got != "task\n" {
		t.Errorf("b = %q", got)
	}
	if out := everything(t, c); !strings.Contains(out, "user\n") {
		t.Error("what does not merge is lost")
	}
	if left, err := os.ReadDir(c.path(".git/choir/publish/p-t1/aside")); err != nil || len(left) > 0 {
		t.Errorf("aside still holds %v, %v", left, err)
	}
}

// TestMergesKeepTheUsersWord publishes random edits of a task over random edits of the user's. Each
// path must end as the user left it, or as the task did where the user did nothing, or as a merge
// of both, and the tree must be that of the commit.
func TestMergesKeepTheUsersWord(t *testing.T) {
	t.Parallel()
	names := []string{"a", "b", "d/a", "d/b", "d/e/f", "d", "e"}
	content := rapid.SampledFrom([]string{"1\n2\n3\n4\n5\n", "one\n2\n3\n4\n5\n", "1\n2\n3\n4\nfive\n", "x\x00y", "", "1\r\n2\r\n"})
	rapid.Check(t, func(rt *rapid.T) {
		c := open(t)
		base, user, tasks := map[string]string{}, map[string]string{}, map[string]string{}
		put := func(m map[string]string, p, v string) {
			for q := range m {
				if strings.HasPrefix(q, p+"/") || strings.HasPrefix(p, q+"/") {
					delete(m, q)
				}
			}
			m[p] = v
		}
		for range rapid.IntRange(1, 6).Draw(rt, "files") {
			put(base, rapid.SampledFrom(names).Draw(rt, "name"), content.Draw(rt, "content"))
		}
		edit := func(m map[string]string, who string) {
			for p, v := range base {
				m[p] = v
			}
			for range rapid.IntRange(0, 4).Draw(rt, who) {
				p := rapid.SampledFrom(names).Draw(rt, who+" path")
				if rapid.Bool().Draw(rt, who+" removes") {
					delete(m, p)
				} else {
					put(m, p, content.Draw(rt, who+" writes"))
				}
			}
		}
		edit(user, "user")
		edit(tasks, "task")
		lay := func(m map[string]string) {
			if err := os.RemoveAll(c.path("workspace")); err != nil {
				rt.Fatal(err)
			}
			for p, v := range m {
				c.write("workspace/"+p, v)
			}
		}
		lay(tasks)
		theirs := c.checkpoint("the task's")
		lay(base)
		b, err := c.Checkpoint(t.Context(), wire.CheckpointRequest{Force: true})
		if err != nil {
			rt.Fatal(err)
		}
		lay(user)
		r, err := c.publish(wire.PrepareRequest{ID: "p", Base: b.Commit.Commit, Tree: theirs.Commit.Commit})
		if err != nil {
			rt.Fatal(err)
		}
		got := picture(t, c.path("."))
		for p, v := range user {
			g := strings.TrimPrefix(got["workspace/"+p], "file ")
			tv, kept := tasks[p]
			switch {
			case v != base[p] || !hasKey(base, p): // the user's version counts
				merged := kept && hasKey(base, p) && g == mergeFile(t, base[p], v, tv)
				if g != v && !merged {
					rt.Errorf("%s: the user wrote %q, it is %q (task %q)", p, v, g, tv)
				}
			case kept && g != tv && g != v:
				rt.Errorf("%s is %q, neither the user's %q nor the task's %q", p, g, v, tv)
			}
		}
		st, err := c.Status(t.Context())
		if err != nil || len(st.Changes) > 0 || r.After != nil {
			rt.Errorf("status = %+v, after %+v, %v", st.Changes, r.After, err)
		}
	})
}

// mergeFile returns what git makes of three versions of a file, or that it can't merge them.
func mergeFile(t *testing.T, base, user, task string) string {
	t.Helper()
	dir := t.TempDir()
	args := []string{"merge-file", "-p"}
	for i, text := range []string{user, base, task} {
		name := filepath.Join(dir, fmt.Sprint(i))
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		args = append(args, name)
	}
	out, err := exec.CommandContext(t.Context(), "git", args...).Output()
	if err != nil {
		return err.Error()
	}
	return string(out)
}

func hasKey(m map[string]string, k string) bool { _, ok := m[k]; return ok }
