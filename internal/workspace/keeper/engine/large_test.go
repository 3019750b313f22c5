package engine_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/workspace/keeper/engine"
	"choir.dev/choiros/internal/workspace/keeper/httpapi"
	"choir.dev/choiros/internal/workspace/keeper/wire"
)

// large is a threshold above which files are chunks, low enough for tests.
const large = 1 << 20

func lowThreshold(o *engine.Options) { o.Limits.FileBytes = large }

// noise returns n bytes that can't be compressed, the same for the same seed.
func noise(seed byte, n int) string {
	b := make([]byte, n)
	_, _ = rand.NewChaCha8([32]byte{seed}).Read(b) // it never fails
	return string(b)
}

// chunkFiles returns the stored chunks by name.
func (c *computer) chunkFiles() map[string]string {
	c.t.Helper()
	names, err := filepath.Glob(c.path(".git/choir/chunks/??/*"))
	if err != nil {
		c.t.Fatal(err)
	}
	out := map[string]string{}
	for _, n := range names {
		out[filepath.Base(n)] = n
	}
	return out
}

// TestLargeFilesAreInCheckpoints shows that a large file is captured, changed, restored, and the
// restore undone, equal byte for byte, and that only the new part of a change is stored.
func TestLargeFilesAreInCheckpoints(t *testing.T) {
	c := open(t, lowThreshold)
	one := noise(1, 20<<20)
	c.write("workspace/big.bin", one)
	c.write("workspace/small", "small\n")
	if err := os.Chmod(c.path("workspace/big.bin"), 0o755); err != nil {
		t.Fatal(err)
	}
	first := c.checkpoint("one")
	if len(first.Left) > 0 {
		t.Fatalf("left out: %v", first.Left)
	}
	stored := len(c.chunkFiles())
	if stored < 4 {
		t.Fatalf("%d chunks of 20 MiB", stored)
	}
	if again := c.checkpoint("nothing new"); again.Created {
		t.Errorf("a checkpoint of what did not change: %+v", again)
	}
	two := one[:9<<20] + "a few bytes more" + one[9<<20:]
	c.write("workspace/big.bin", two)
	second := c.checkpoint("two")
	if fresh := len(c.chunkFiles()) - stored; fresh < 1 || fresh > 3 {
		t.Errorf("%d new chunks for some bytes put in; %d were there", fresh, stored)
	}
	d, err := c.Diff(t.Context(), wire.DiffRequest{From: first.Commit.Commit, To: second.Commit.Commit})
	if err != nil || len(d.Changes) != 1 || d.Changes[0] != (wire.Change{Path: "workspace/big.bin", Op: "modified", Added: -1, Removed: -1}) {
		t.Errorf("the difference is %+v, %v", d.Changes, err)
	}
	if strings.Contains(d.Diff, "choir chunks") {
		t.Errorf("the manifest is shown: %q", d.Diff)
	}
	want := picture(t, c.opts.Root)
	c.restore(wire.RestoreRequest{ID: "r1", To: first.Commit.Commit})
	if c.read("workspace/big.bin") != one {
		t.Error("the file is not what it was")
	}
	if st, err := os.Stat(c.path("workspace/big.bin")); err != nil || st.Mode()&0o100 == 0 {
		t.Errorf("it was executable and is %v, %v", st.Mode(), err)
	}
	c.restore(wire.RestoreRequest{ID: "r2", Undo: true})
	samePicture(t, picture(t, c.opts.Root), want)
	// When everything that is known of files is forgotten, they are read again and found to be the
	// same.
	c.reopen()
	if err := os.Remove(c.path(".git/choir/stats")); err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	c.reopen()
	if st, err := c.Status(t.Context()); err != nil || len(st.Changes) > 0 {
		t.Errorf("status: %+v, %v", st.Changes, err)
	}
}

// TestAForgedManifestIsAFile shows that neither a name nor a content makes a file count as a large
// one, and that a large file that is replaced by its manifest counts as changed.
func TestAForgedManifestIsAFile(t *testing.T) {
	c := open(t, lowThreshold)
	c.write("workspace/big", noise(1, 3<<20))
	c.checkpoint("big")
	manifest := stockGit(t, c.opts.Root, "cat-file", "blob", "HEAD:workspace/big.chunks.choir")
	for _, p := range []string{"plain", "big.chunks.choir", "x.chunks.choir", "x.chunks.choir.choir", ".git.chunks.choir", "x.chunks", "dir.chunks.choir/x"} {
		c.write("workspace/"+p, manifest)
	}
	c.write("workspace/big", manifest)
	before := picture(t, c.opts.Root)
	r := c.checkpoint("forged")
	if r.Files != 8 || len(r.Left) > 0 {
		t.Errorf("%d changed, left %v", r.Files, r.Left)
	}
	if err := os.RemoveAll(c.path("workspace")); err != nil {
		t.Fatal(err)
	}
	c.checkpoint("gone")
	c.restore(wire.RestoreRequest{ID: "r", To: r.Commit.Commit})
	samePicture(t, picture(t, c.opts.Root), before)
	for p, want := range before {
		if !strings.HasPrefix(want, "file ") {
			continue
		}
		var b bytes.Buffer
		if _, _, err := c.Show(t.Context(), r.Commit.Commit, p, -1, &b); err != nil || "file "+b.String() != want {
			t.Errorf("%s is shown as %d bytes, %v", p, b.Len(), err)
		}
	}
	c.scrubbed()
}

func (c *computer) scrubbed() {
	c.t.Helper()
	if found := c.scrubAll(); len(found) > 0 {
		c.t.Errorf("damaged: %+v", found)
	}
}

// TestAFileGrowsLargeAndSmall shows that crossing the threshold is a change of one file.
func TestAFileGrowsLargeAndSmall(t *testing.T) {
	c := open(t, lowThreshold)
	sizes := []int{large, large + 1, 10, 3 << 20, 0, 2 << 20}
	var ids []string
	for i, n := range sizes {
		c.write("workspace/f", noise(byte(i), n))
		ids = append(ids, c.checkpoint(fmt.Sprint(n)).Commit.Commit)
		if i > 0 {
			d, err := c.Diff(t.Context(), wire.DiffRequest{From: ids[i-1], To: ids[i]})
			if err != nil || len(d.Changes) != 1 || d.Changes[0].Op != "modified" || d.Changes[0].Path != "workspace/f" {
				t.Errorf("from %d to %d bytes: %+v, %v", sizes[i-1], n, d.Changes, err)
			}
		}
	}
	for i := range sizes {
		c.restore(wire.RestoreRequest{ID: fmt.Sprint("r", i), To: ids[i]})
		if c.read("workspace/f") != noise(byte(i), sizes[i]) {
			t.Errorf("version %d is not what it was", i)
		}
	}
}

// TestAPutLargeFileIsKept shows that a large file whose put was acknowledged is kept before there
// is any checkpoint, and that reading a part of an old version returns that part.
func TestAPutLargeFileIsKept(t *testing.T) {
	c := open(t, lowThreshold)
	one, two := noise(1, 5<<20), noise(2, 4<<20)
	w, err := c.Write(t.Context(), wire.WriteRequest{Path: "workspace/f"}, strings.NewReader(one))
	if err != nil || w.Size != int64(len(one)) {
		t.Fatalf("%+v, %v", w, err)
	}
	if len(c.chunkFiles()) == 0 {
		t.Fatal("the put's bytes are nowhere but in the live file")
	}
	if _, err := c.Write(t.Context(), wire.WriteRequest{Path: "workspace/f", If: "0000000000000000000000000000000000000000"}, strings.NewReader(two)); !fault.Is(err, fault.Conflict) {
		t.Errorf("a put on top of something else: %v", err)
	}
	r := c.checkpoint("one")
	if _, err := c.Write(t.Context(), wire.WriteRequest{Path: "workspace/f", If: w.ID}, strings.NewReader(two)); err != nil {
		t.Fatal(err)
	}
	if c.read("workspace/f") != two {
		t.Error("the second put is not there")
	}
	srv := httptest.NewServer(httpapi.Handler(c.Engine))
	defer srv.Close()
	for _, at := range [][2]int{{0, 0}, {3 << 20, 1000}, {len(one) - 5, 0}, {1<<20 - 3, 2 << 20}, {len(one), 1}} {
		q := fmt.Sprintf(`{"path":"workspace/f","commit":%q,"offset":%d,"limit":%d}`, r.Commit.Commit, at[0], at[1])
		resp, err := srv.Client().Post(srv.URL+"/keeper/stream/read?q="+url.QueryEscape(q), "", nil)
		if err != nil {
			t.Fatal(err)
		}
		var b bytes.Buffer
		_, err = b.ReadFrom(resp.Body)
		resp.Body.Close()
		end := len(one)
		if at[1] > 0 {
			end = min(end, at[0]+at[1])
		}
		if err != nil || b.String() != one[at[0]:end] || resp.Header.Get("X-Choir-Size") != fmt.Sprint(len(one)) {
			t.Errorf("from %d: %d bytes of %s, %v", at[0], b.Len(), resp.Header.Get("X-Choir-Size"), err)
		}
	}
}

// TestTasksAndLargeFiles shows that a large file that a task changed is published, that one that
// both changed is a conflict, and that nobody's bytes are lost.
func TestTasksAndLargeFiles(t *testing.T) {
	c := open(t, lowThreshold)
	c.write("workspace/a", noise(1, 3<<20))
	c.write("workspace/b", noise(2, 3<<20))
	k := c.begin("t1")
	k.write("workspace/a", noise(3, 3<<20))
	k.write("workspace/b", noise(4, 3<<20))
	k.write("workspace/new", noise(5, 2<<20))
	tree := k.tree()
	if len(tree.Left) > 0 {
		t.Fatalf("left out: %v", tree.Left)
	}
	c.write("workspace/b", noise(6, 3<<20))
	r, err := c.publish(wire.PrepareRequest{ID: "p", Base: k.base, Tree: tree.Commit, Note: wire.Note{Message: "the task"}})
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Conflicts) != 1 || r.Conflicts[0].Path != "workspace/b" {
		t.Errorf("conflicts: %+v", r.Conflicts)
	}
	for p, want := range map[string]string{"a": noise(3, 3<<20), "b": noise(6, 3<<20), "new": noise(5, 2<<20)} {
		if c.read("workspace/"+p) != want {
			t.Errorf("%s is not what it should be", p)
		}
	}
	s, err := c.Snapshot(t.Context(), tree.Commit)
	if err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(c.inLayers(s.Layers, "workspace/b"))
	if err != nil || string(b) != noise(4, 3<<20) {
		t.Errorf("the task's version is not kept: %v", err)
	}
}

// TestDamagedChunks shows that a missing chunk and one with a flipped bit are found, made again
// from whatever still holds their bytes, and otherwise named, and that a restore that needs a chunk
// that nothing holds is refused before anything moves.
func TestDamagedChunks(t *testing.T) {
	t.Parallel()
	damages := map[string]func(t *testing.T, name string){
		"is missing": func(t *testing.T, name string) {
			if err := os.Remove(name); err != nil {
				t.Fatal(err)
			}
		},
		"is other than its name": func(t *testing.T, name string) {
			b, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			b[len(b)/2] ^= 1
			overwrite(t, name, b)
		},
	}
	for reason, damage := range damages {
		for _, where := range []string{"the live file", "moved on", "a snapshot", "the trash", ""} {
			t.Run(reason+" "+where, func(t *testing.T) {
				c := open(t, lowThreshold)
				one := noise(1, 6<<20)
				c.write("workspace/big", one)
				first := c.checkpoint("one")
				want := where
				switch where {
				case "moved on":
					c.write("workspace/big", "some bytes in front"+one)
					want = "the live file"
				case "a snapshot":
					if _, err := c.Snapshot(t.Context(), first.Commit.Commit); err != nil {
						t.Fatal(err)
					}
				case "the trash":
					if _, err := c.Remove(t.Context(), wire.RemoveRequest{Path: "workspace/big"}); err != nil {
						t.Fatal(err)
					}
				}
				if where != "the live file" && where != "moved on" {
					c.write("workspace/big", "small now\n")
				}
				c.checkpoint("two")
				victim := ""
				for name := range c.chunkFiles() { // one that all versions share
					if b := c.chunkFiles()[name]; victim == "" && strings.Contains(one[2<<20:], string(mustRead(t, b))) {
						victim = b
					}
				}
				damage(t, victim)
				found := c.scrubAll()
				if len(found) != 1 || found[0].Kind != "chunk" || found[0].Path != "workspace/big" || found[0].Reason != reason || found[0].Healed != want {
					t.Fatalf("found %+v", found)
				}
				before := picture(t, c.opts.Root)
				_, err := c.Restore(t.Context(), wire.RestoreRequest{ID: "r", To: first.Commit.Commit})
				if want != "" {
					c.scrubbed()
					if err != nil || c.read("workspace/big") != one {
						t.Errorf("the restore: %v", err)
					}
					return
				}
				if !fault.Is(err, fault.Damaged) || !strings.Contains(err.Error(), "workspace/big") {
					t.Errorf("a restore of what is gone: %v", err)
				}
				if _, err := c.Prepare(t.Context(), wire.PrepareRequest{ID: "p", Base: "HEAD", Tree: first.Commit.Commit}); !fault.Is(err, fault.Damaged) {
					t.Errorf("a publish of what is gone: %v", err)
				}
				samePicture(t, picture(t, c.opts.Root), before)
				c.write("workspace/other", "goes on\n")
				c.checkpoint("it goes on")
			})
		}
	}
}

// TestMissingChunksAreMadeAgainAsItOpens shows that missing chunks of the newest checkpoint are
// made again from the live files as the engine opens, before anybody can remove the last copy.
// Chunks that are missing elsewhere are not invented.
func TestMissingChunksAreMadeAgainAsItOpens(t *testing.T) {
	c := open(t, lowThreshold)
	one, two := noise(1, 6<<20), noise(2, 6<<20)
	c.write("workspace/big", one)
	first := c.checkpoint("one")
	c.write("workspace/big", two)
	second := c.checkpoint("two")
	all := c.chunkFiles()
	dir := filepath.Join(c.opts.Root, ".git/choir/chunks")
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	c.reopen()
	c.write("workspace/big", "small now\n")
	c.checkpoint("three")
	now := c.chunkFiles()
	if len(now) == 0 || len(now) >= len(all) {
		t.Fatalf("there are %d chunks, there were %d", len(now), len(all))
	}
	if _, err := c.Restore(t.Context(), wire.RestoreRequest{ID: "r1", To: first.Commit.Commit}); !fault.Is(err, fault.Damaged) || c.read("workspace/big") != "small now\n" {
		t.Errorf("a restore of what is gone: %v", err)
	}
	if _, err := c.Restore(t.Context(), wire.RestoreRequest{ID: "r2", To: second.Commit.Commit}); err != nil || c.read("workspace/big") != two {
		t.Errorf("a restore of what was live: %v", err)
	}
}

func mustRead(t *testing.T, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestKilledWithLargeFiles kills the engine at each point of a change with large files. What was
// acknowledged must be there, and no commit may name a missing chunk.
func TestKilledWithLargeFiles(t *testing.T) {
	t.Parallel()
	for do, points := range map[string][]string{
		"checkpoint":  {"chunks.written", "chunks.synced", "chunks.named", "checkpoint.captured", "commit.written", "commit.done"},
		"restore":     {"chunks.written", "chunks.named", "restore.safe", "publish.started", "apply.staging", "apply.exchanged", "apply.placed", "apply.done"},
		"write-large": {"chunks.written", "chunks.synced", "chunks.named", "trash.intended", "trash.exchanged"},
	} {
		for _, point := range points {
			t.Run(do+"/"+point, func(t *testing.T) {
				c := open(t, lowThreshold)
				one, two := noise(1, 4<<20), noise(2, 4<<20)
				c.write("workspace/big", one)
				first := c.checkpoint("one")
				c.write("workspace/big", two)
				spec := childSpec{Root: c.opts.Root, Snapshots: c.opts.Snapshots, Uppers: c.opts.Uppers, Point: point, Nth: 1, Do: do, To: first.Commit.Commit, Large: large}
				if do == "write-large" {
					spec.To = "workspace/big"
				}
				if err := c.Close(); err != nil {
					t.Fatal(err)
				}
				c.Engine = nil
				if !runChild(t, spec) {
					t.Fatalf("the child did not pass %s", point)
				}
				c.reopen()
				if _, err := c.Unlogged(t.Context()); err != nil {
					t.Fatal(err)
				}
				switch got := c.read("workspace/big"); {
				case got == two:
				case got == one && do == "restore":
				case got == noise(9, 6<<20) && do == "write-large":
				default:
					t.Errorf("the file has %d bytes that nobody wrote", len(got))
				}
				c.checkpoint("afterwards")
				c.scrubbed()
				tmp, err := filepath.Glob(c.path(".git/choir/chunks/tmp-*"))
				if err != nil || len(tmp) > 0 {
					t.Errorf("left behind: %v, %v", tmp, err)
				}
				c.restore(wire.RestoreRequest{ID: "again", To: first.Commit.Commit})
				if c.read("workspace/big") != one {
					t.Error("the first version is gone")
				}
			})
		}
	}
}

// TestLimitsOfLargeFiles shows that files beyond the largest size or the quota are left out, that
// this is said, and that what was captured before stays.
func TestLimitsOfLargeFiles(t *testing.T) {
	c := open(t, lowThreshold, func(o *engine.Options) {
		o.Limits.LargestFile, o.Limits.ChunkBytes = 8<<20, 12<<20
	})
	c.write("workspace/a", noise(1, 6<<20))
	first := c.checkpoint("fits")
	c.write("workspace/huge", noise(2, 9<<20))
	c.write("workspace/b", noise(3, 7<<20))
	c.write("workspace/small", "is kept\n")
	r := c.checkpoint("does not")
	reasons := map[string]string{}
	for _, s := range r.Left {
		reasons[string(s.Path)] = s.Reason
	}
	if len(first.Left) > 0 || len(reasons) != 2 || !strings.Contains(reasons["workspace/huge"], "at most") || !strings.Contains(reasons["workspace/b"], "all the space") {
		t.Errorf("left out: %v, then %v", first.Left, r.Left)
	}
	if _, err := c.Object(t.Context(), wire.ObjectRequest{Path: "workspace/small"}); err != nil {
		t.Errorf("what fits is not captured: %v", err)
	}
	for p, n := range map[string]int{"workspace/put": 7 << 20, "workspace/put2": 9 << 20} {
		if _, err := c.Write(t.Context(), wire.WriteRequest{Path: wire.Path(p)}, strings.NewReader(noise(4, n))); !fault.Is(err, fault.Exhausted) {
			t.Errorf("a put of %d bytes: %v", n, err)
		}
	}
}

// TestNestedPacksAreLargeFiles shows that a nested repository's pack is captured like any other
// file.
func TestNestedPacksAreLargeFiles(t *testing.T) {
	c := open(t, lowThreshold)
	nestedRepo(c, "workspace/repo", filepath.Join(t.TempDir(), "canary"))
	c.write("workspace/repo/.git/objects/pack/pack-1.pack", noise(1, 5<<20))
	before := picture(t, c.opts.Root)
	r := c.checkpoint("with a pack")
	if len(r.Left) > 0 {
		t.Errorf("left out: %v", r.Left)
	}
	if err := os.RemoveAll(c.path("workspace/repo/.git")); err != nil {
		t.Fatal(err)
	}
	c.checkpoint("gone")
	c.restore(wire.RestoreRequest{ID: "r", To: r.Commit.Commit})
	samePicture(t, picture(t, c.opts.Root), before)
}

// TestLargeFilesAgainstAModel edits large and small files at random and restores earlier
// checkpoints. Every checkpoint must be restored as it was.
func TestLargeFilesAgainstAModel(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		c := open(t, lowThreshold)
		type version struct {
			id    string
			files map[string]string
		}
		files := map[string]string{}
		var past []version
		names := rapid.SampledFrom([]string{"a", "a.chunks.choir", "d/b", "d/.gitmodules"})
		for i := range rapid.IntRange(2, 6).Draw(rt, "steps") {
			name := "workspace/" + names.Draw(rt, "name")
			old := files[name]
			at := rapid.IntRange(0, len(old)).Draw(rt, "at")
			switch rapid.IntRange(0, 4).Draw(rt, "what") {
			case 0:
				files[name] = noise(byte(i), rapid.IntRange(0, 4<<20).Draw(rt, "size"))
			case 1:
				files[name] = old[:at] + noise(byte(i), rapid.IntRange(1, 1<<20).Draw(rt, "more")) + old[at:]
			case 2:
				files[name] = old[:at]
			case 3:
				delete(files, name)
			case 4:
				if len(past) > 0 {
					to := past[rapid.IntRange(0, len(past)-1).Draw(rt, "to")]
					c.restore(wire.RestoreRequest{ID: fmt.Sprint("r", i), To: to.id})
					files = map[string]string{}
					for p, s := range to.files {
						files[p] = s
					}
				}
			}
			if s, ok := files[name]; ok {
				c.write(name, s)
			} else if err := os.Remove(c.path(name)); err != nil && !os.IsNotExist(err) {
				rt.Fatal(err)
			}
			r := c.checkpoint(fmt.Sprint(i))
			kept := map[string]string{}
			for p, s := range files {
				kept[p] = s
			}
			past = append(past, version{r.Commit.Commit, kept})
		}
		for i, v := range past {
			c.restore(wire.RestoreRequest{ID: fmt.Sprint("back", i), To: v.id})
			for p, want := range v.files {
				if c.read(p) != want {
					rt.Errorf("version %d: %s is not what it was", i, p)
				}
			}
		}
		c.scrubbed()
	})
}
