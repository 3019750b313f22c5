package engine_test

import (
	"bytes"
	"crypto/sha1"
	"encoding/hex"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"choir.dev/choiros/internal/workspace/keeper/engine"
	"choir.dev/choiros/internal/workspace/keeper/wire"
)

// brought is a list of objects as somebody who took over a push's box might send it.
type brought struct {
	list bytes.Buffer
	base string // the checkpoint that the push goes on from
	from string // its tree
	tip  string
}

func (b *brought) object(kind, content string) string {
	sum := sha1.Sum(fmt.Appendf(nil, "%s %d\x00%s", kind, len(content), content))
	id := hex.EncodeToString(sum[:])
	fmt.Fprintf(&b.list, "%s %s %d\n%s\n", id, kind, len(content), content)
	return id
}

// tree adds a tree of entries "MODE NAME" and their ids, in the order given.
func (b *brought) tree(entries ...string) string {
	var raw strings.Builder
	for i := 0; i < len(entries); i += 2 {
		id, err := hex.DecodeString(entries[i+1])
		if err != nil {
			panic(err)
		}
		raw.WriteString(entries[i] + "\x00" + string(id))
	}
	return b.object("tree", raw.String())
}

func (b *brought) commit(tree, message string, parents ...string) string {
	var head strings.Builder
	fmt.Fprintf(&head, "tree %s\n", tree)
	for _, p := range parents {
		fmt.Fprintf(&head, "parent %s\n", p)
	}
	b.tip = b.object("commit", head.String()+"author a <a@b> 1 +0000\ncommitter a <a@b> 1 +0000\n\n"+message+"\n")
	return b.tip
}

// header commits the base's tree with additional header lines, and somebody as its author.
func (b *brought) header(more, who string) {
	b.tip = b.object("commit", "tree "+b.from+"\n"+more+"\nauthor "+who+"\ncommitter "+who+"\n\nm\n")
}

func (b *brought) file(content string) string { return b.object("blob", content) }

// pushes returns a computer with a checkpoint, and the beginning of a push to it.
func pushes(t *testing.T, change ...func(*engine.Options)) (*computer, *brought) {
	t.Helper()
	c := open(t, change...)
	c.write("a", "a")
	c.write("sub/.git/HEAD", "ref: refs/heads/main\n")
	c.write("sub/f", "f")
	c.checkpoint("base")
	tree := strings.TrimSpace(c.git("rev-parse", "HEAD^{tree}"))
	return c, &brought{base: c.Head(), from: tree}
}

func (c *computer) receive(b *brought) error {
	_, err := c.Pushes().Receive(c.ctx(), wire.ReceiveRequest{ID: "push", Base: b.base, Tip: b.tip, Most: 1 << 20}, bytes.NewReader(b.list.Bytes()))
	return err
}

func (c *computer) git(args ...string) string {
	c.t.Helper()
	cmd := exec.CommandContext(c.t.Context(), "git", append([]string{"--git-dir=" + filepath.Join(c.opts.Root, ".git")}, args...)...)
	cmd.Env = append(os.Environ(), "GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@b", "GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@b")
	out, err := cmd.Output()
	if err != nil {
		c.t.Fatalf("git %v: %v", args, err)
	}
	return string(out)
}

func (c *computer) objects() []string {
	ids := strings.Fields(c.git("cat-file", "--batch-all-objects", "--batch-check=%(objectname)"))
	slices.Sort(ids)
	return ids
}

// TestWhatAPushBringsIsChecked shows that whatever a push's box sends, nothing is written of
// objects that no checkpoint could have, that go on from elsewhere, or that are not complete.
func TestWhatAPushBringsIsChecked(t *testing.T) {
	for name, try := range map[string]struct {
		words string
		make  func(c *computer, b *brought)
	}{
		"the computer's .git":     {"no checkpoint has", func(_ *computer, b *brought) { b.root("40000 .git", b.tree("100644 config", b.file("x"))) }},
		".git as it is written":   {"inside .git", func(_ *computer, b *brought) { b.root("40000 .git.choir", b.tree("100644 config", b.file("x"))) }},
		".git in capitals":        {"no checkpoint has", func(_ *computer, b *brought) { b.root("40000 .GIT", b.tree("100644 config", b.file("x"))) }},
		".git's short name":       {"no checkpoint has", func(_ *computer, b *brought) { b.root("40000 git~1", b.tree("100644 config", b.file("x"))) }},
		"the folder above":        {"no checkpoint has", func(_ *computer, b *brought) { b.root("40000 ..", b.tree("100644 x", b.file("x"))) }},
		"the folder above in hex": {"no checkpoint has", func(_ *computer, b *brought) { b.root("40000 .choir-hex-2e2e", b.tree("100644 x", b.file("x"))) }},
		"a path for a name":       {"no checkpoint has", func(_ *computer, b *brought) { b.root("100644 x/y", b.file("x")) }},
		"a path in hex":           {"no checkpoint has", func(_ *computer, b *brought) { b.root("100644 .choir-hex-782f79", b.file("x")) }},
		"a long name":             {"no checkpoint has", func(_ *computer, b *brought) { b.root("100644 "+strings.Repeat("x", 256), b.file("x")) }},
		"submodules' list":        {"no checkpoint has", func(_ *computer, b *brought) { b.root("100644 .gitmodules", b.file("x")) }},
		"a submodule":             {"is a submodule", func(_ *computer, b *brought) { b.root("160000 x", b.base) }},
		"another mode":            {"has the mode", func(_ *computer, b *brought) { b.root("104755 x", b.file("x")) }},
		"a repository of its own": {"of a repository of its own", func(_ *computer, b *brought) {
			b.root("40000 x", b.tree("40000 .git.choir", b.tree("100644 config", b.file("x"))))
		}},
		"a forged large file": {"manifest of no large file", func(_ *computer, b *brought) { b.root("100644 x.chunks.choir", b.file("choir chunks 1\n")) }},
		"a forged one that is one": {"manifest of no large file", func(c *computer, b *brought) {
			c.write("m", "choir chunks 1\n")
			c.checkpoint("a file")
			b.base = c.Head()
			b.root("100644 x.chunks.choir", (&brought{}).file("choir chunks 1\n"))
		}},
		"a name twice": {"twice", func(_ *computer, b *brought) { f := b.file("x"); b.root("100644 x", f, "100644 x", f) }},
		"a file and a folder": {"twice", func(_ *computer, b *brought) {
			f := b.file("x")
			b.root("100644 x", f, "40000 x", b.tree("100644 y", f))
		}},
		"not in order":            {"twice, or not in git's order", func(_ *computer, b *brought) { f := b.file("x"); b.root("100644 y", f, "100644 x", f) }},
		"no tree":                 {"no list of names", func(_ *computer, b *brought) { b.commit(b.object("tree", "100644 x\x00short"), "m", b.base) }},
		"a file that is missing":  {"is missing", func(_ *computer, b *brought) { b.root("100644 x", strings.Repeat("1", 40)) }},
		"a folder that is a file": {"is no tree", func(_ *computer, b *brought) { b.root("40000 x", b.file("x")) }},
		"a link to nothing":       {"leads to no path", func(_ *computer, b *brought) { b.root("120000 x", b.file("")) }},
		"a link with a NUL":       {"leads to no path", func(_ *computer, b *brought) { b.root("120000 x", b.file("a\x00b")) }},
		"a link of pages":         {"leads to no path", func(_ *computer, b *brought) { b.root("120000 x", b.file(strings.Repeat("x", 5000))) }},
		"a checkpoint's words":    {"begins with", func(_ *computer, b *brought) { b.commit(b.tree(), "m\n\nChoir-Kind: auto\nChoir-Seq: 99", b.base) }},
		"no parent":               {"does not go on", func(_ *computer, b *brought) { b.commit(b.tree(), "m") }},
		"another's history": {"does not go on", func(c *computer, b *brought) {
			other := strings.TrimSpace(c.git("commit-tree", "-m", "elsewhere", b.from))
			b.commit(b.tree("100644 x", b.file("x")), "m", b.base, other)
		}},
		"from no checkpoint": {"does not go on", func(c *computer, b *brought) {
			b.base = strings.TrimSpace(c.git("commit-tree", "-m", "elsewhere", b.from))
			b.commit(b.tree("100644 x", b.file("x")), "m", b.base)
		}},
		"a commit that git can't read": {"is none", func(_ *computer, b *brought) {
			b.tip = b.object("commit", "parent "+b.base+"\ntree "+b.from+"\nauthor a <a@b> 1 +0000\ncommitter a <a@b> 1 +0000\n\nm\n")
		}},
		"a commit of two trees": {"is none", func(_ *computer, b *brought) { b.header("tree "+b.from+"\nparent "+b.base, "a <a@b> 1 +0000") }},
		"a commit of nobody":    {"is none", func(_ *computer, b *brought) { b.header("parent "+b.base, "a 1 +0000") }},
		"a commit never made": {"is none", func(_ *computer, b *brought) {
			b.header("parent "+b.base, "a <a@b> 99999999999999999999 +0000")
		}},
		"a commit's author elsewhere": {"is none", func(_ *computer, b *brought) {
			b.tip = b.object("commit", "tree "+b.from+"\nparent "+b.base+"\ngpgsig x\nauthor a <a@b> 1 +0000\ncommitter a <a@b> 1 +0000\n\nm\n")
		}},
		"a folder of nothing": {"without anything", func(_ *computer, b *brought) { b.root("40000 x", b.tree()) }},
		"a tag":               {"is a", func(_ *computer, b *brought) { b.object("tag", "x") }},
		"a name that lies":    {"other than its name", func(_ *computer, b *brought) { b.list.WriteString(strings.Repeat("1", 40) + " blob 1\nx\n") }},
		"no list":             {"no list", func(_ *computer, b *brought) { b.list.WriteString("hello\n") }},
		"a list cut off":      {"no list", func(_ *computer, b *brought) { b.list.WriteString(strings.Repeat("1", 40) + " blob 9\nx") }},
		"too much":            {"unpacked", func(_ *computer, b *brought) { b.file(strings.Repeat("x", 1<<20+1)) }},
		"nothing":             {"not in it", func(_ *computer, _ *brought) {}},
		"a folder of a bomb": {"more than", func(_ *computer, b *brought) {
			at := b.tree("100644 f", b.file("x"))
			for range 8 {
				var list []string
				for n := range 30 {
					list = append(list, fmt.Sprintf("40000 %02d", n), at)
				}
				at = b.tree(list...)
			}
			b.root("40000 b", at)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			c, b := pushes(t, func(o *engine.Options) { o.Limits.Files = 100 })
			try.make(c, b)
			before := c.objects()
			if err := c.receive(b); err == nil || !strings.Contains(err.Error(), try.words) {
				t.Errorf("it was answered with %v, without %q", err, try.words)
			}
			if after := c.objects(); !slices.Equal(after, before) {
				t.Errorf("of what was refused there is something: %d objects, were %d", len(after), len(before))
			}
			if left, err := filepath.Glob(filepath.Join(c.opts.Root, ".git/choir/incoming-*")); err != nil || len(left) > 0 {
				t.Errorf("it left %v, %v", left, err)
			}
		})
	}
}

// root commits a root with an entry beside those of the base.
func (b *brought) root(entries ...string) { b.commit(b.tree(entries...), "m", b.base) }

// TestAPushIsAParentOfItsCheckpoint shows that a received push changes nothing until it is
// published. Then it is a parent beside the history, and what was a link is a folder here and
// nowhere else.
func TestAPushIsAParentOfItsCheckpoint(t *testing.T) {
	outside := t.TempDir()
	c, _ := pushes(t)
	if err := os.Symlink(outside, filepath.Join(c.opts.Root, "way")); err != nil {
		t.Fatal(err)
	}
	c.checkpoint("a link")
	b := &brought{base: c.Head()}
	sub := strings.Fields(c.git("rev-parse", "HEAD:sub"))[0]
	b.commit(b.tree("100644 a", b.file("a"), "100755 run", b.file("run"), "40000 sub", sub, "40000 way", b.tree("100644 in", b.file("in"), "120000 out", b.file(outside))), "pushed", b.base)
	head := c.Head()
	if err := c.receive(b); err != nil {
		t.Fatal(err)
	}
	if c.Head() != head {
		t.Error("what was received is the newest checkpoint")
	}
	p, err := c.Prepare(c.ctx(), wire.PrepareRequest{ID: "push-1", Base: b.base, Tree: b.tip, Pushed: b.tip, Received: "push", Whole: true, Note: wire.Note{Kind: "push", Message: "Push"}})
	if err != nil || len(p.Conflicts) > 0 {
		t.Fatalf("%+v, %v", p.Conflicts, err)
	}
	if _, err := c.Apply(c.ctx(), "push-1"); err != nil {
		t.Fatal(err)
	}
	if got := strings.Fields(c.git("log", "-1", "--format=%P")); !slices.Equal(got, []string{head, b.tip}) {
		t.Errorf("the checkpoint has the parents %v, want %s and %s", got, head, b.tip)
	}
	if list, err := c.List(c.ctx(), wire.ListRequest{Limit: 100}); err != nil || list[0].Kind != "push" || slices.ContainsFunc(list, func(k wire.Commit) bool { return k.Commit == b.tip }) {
		t.Errorf("the checkpoints are %+v, %v", list, err)
	}
	if in, err := os.ReadFile(filepath.Join(c.opts.Root, "way/in")); err != nil || string(in) != "in" {
		t.Errorf("way/in is %q, %v", in, err)
	}
	if left, err := os.ReadDir(outside); err != nil || len(left) > 0 {
		t.Errorf("outside is %v, %v", left, err)
	}
	if out, err := exec.CommandContext(t.Context(), filepath.Join(c.opts.Root, "run")).CombinedOutput(); strings.Contains(fmt.Sprint(err), "permission denied") {
		t.Errorf("what was pushed as a program is none: %v %s", err, out)
	}
}

// TestAPushLetsNothingIgnoredIn shows that a push that changes the ignore rules does not get
// ignored live files into the next checkpoint, where whoever pushes could read them.
func TestAPushLetsNothingIgnoredIn(t *testing.T) {
	const before = ".env\ndist/\n"
	for name, try := range map[string]struct {
		rules string // the push removes the rules when this is empty
		let   []string
	}{
		"all of it":             {"", []string{".env", "dist"}},
		"one file":              {"dist/\n", []string{".env"}},
		"a folder of that name": {".env/\ndist/\n", []string{".env"}},
		"one file of a folder":  {".env\ndist/*\n!dist/key\n", []string{"dist"}},
		"an exception":          {before + "!.env\n", []string{".env"}},
		"more is ignored":       {before + "*.log\n", nil},
		"in other words":        {"/.e*\n/dist\n", nil},
	} {
		t.Run(name, func(t *testing.T) {
			c, _ := pushes(t)
			c.write(".gitignore", before)
			c.write(".env", "secret")
			c.write("dist/key", "secret")
			c.checkpoint("with rules")
			b := &brought{base: c.Head()}
			a, sub := strings.TrimSpace(c.git("rev-parse", "HEAD:a")), strings.TrimSpace(c.git("rev-parse", "HEAD:sub"))
			list := []string{"100644 a", a, "40000 sub", sub}
			if try.rules != "" {
				list = append([]string{"100644 .gitignore", b.file(try.rules)}, list...)
			}
			b.commit(b.tree(list...), "rules", b.base)
			if err := c.receive(b); err != nil {
				t.Fatal(err)
			}
			p, err := c.Prepare(c.ctx(), wire.PrepareRequest{ID: "push-1", Base: b.base, Tree: b.tip, Pushed: b.tip, Received: "push", Whole: true, Note: wire.Note{Kind: "push", Message: "Push"}})
			var let []string
			for _, conflict := range p.Conflicts {
				let = append(let, string(conflict.Path))
			}
			if slices.Sort(let); err != nil || !slices.Equal(let, try.let) {
				t.Errorf("it would let in %v, want %v; %v", let, try.let, err)
			}
		})
	}
}
