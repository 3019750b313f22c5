package chaos_test

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"choir.dev/choiros/internal/workspace/keeper/engine"
	"choir.dev/choiros/internal/workspace/keeper/wire"
)

// TestPowerCutsAmongPuts has a keeper put, remove and move files while programs change them, and
// cuts the power on a file system that keeps only what was synced and the order of changes of
// names: states of the disk, some of them from within a put, a removal or a move, are combined
// with the keeper's journal of a later instant. Everything that was put, removed and moved after
// that state must be done, whatever the disk lost in between, and what was done before it is as
// the programs left it.
func TestPowerCutsAmongPuts(t *testing.T) {
	if !mountable(t) {
		return
	}
	worlds, steps := 2, 6
	if long > 0 {
		worlds, steps = 16, 10
	}
	for n := range worlds {
		t.Run(fmt.Sprint("world ", n), func(t *testing.T) {
			w := newPuts(t)
			dice := random(fmt.Sprint("puts ", n))
			for range steps {
				w.step(dice)
			}
			w.stop()
			w.cuts()
		})
	}
}

// TestAnActOfEachKindAfterEachOther cuts the power in the same way among chosen puts, removals
// and moves of one file and its folder.
func TestAnActOfEachKindAfterEachOther(t *testing.T) {
	if !mountable(t) {
		return
	}
	for what, steps := range map[string][]string{
		"put, moved, removed, put":            {"put b", "move b f", "remove f", "put b"},
		"moved away and back":                 {"move a b", "move b a", "put a", "remove a"},
		"moved back by a program":             {"put b", "move b f", "rename f b", "move b f"},
		"a folder with what was put, removed": {"put d/c", "put d/new", "remove d", "put d/c"},
		"a folder with what was put, moved":   {"put d/c", "move d f", "put d/c", "move f/c b", "remove f"},
		"what a program made, removed":        {"write a", "remove a", "put a"},
		"what a program made, moved":          {"write a", "move a b", "put a", "write b"},
		"over what a program removed":         {"unlink a", "put f", "move f a", "remove a"},
		"a program's file goes and comes":     {"write f", "move f b", "put f", "rename f a", "remove b"},
	} {
		t.Run(what, func(t *testing.T) {
			w := newPuts(t)
			for _, step := range steps {
				w.do(strings.Fields(step))
			}
			w.stop()
			w.cuts()
		})
	}
}

// puts is a keeper on a disk of its own, with what was done to its files.
type puts struct {
	t       *testing.T
	image   string
	mount   string
	unmount func()
	keeper  *engine.Engine
	boots   int      // how often a keeper was opened, each time in another boot of the machine
	did     []string // what each step did
	acts    []act    // the puts, removals and moves that the keeper recorded, in their order
	shots   []shot
}

// act is what the keeper was asked for.
type act struct{ op, path, from, text string }

// shot is the disk at some instant, with everything synced.
type shot struct {
	image   string
	journal []byte // the keeper's journal at that instant
	done    int    // how many acts are done on the disk
	known   int    // how many acts the journal has
	within  bool   // whether the instant is within an act
}

var putPaths = []string{"a", "b", "d/c", "d", "f"}

func newPuts(t *testing.T) *puts {
	t.Helper()
	dir := t.TempDir()
	w := &puts{t: t, image: filepath.Join(dir, "image"), mount: filepath.Join(dir, "mnt")}
	run(t, "truncate", "-s", "64M", w.image)
	run(t, "mkfs.ext4", "-q", w.image)
	w.must(os.Mkdir(w.mount, 0o755))
	w.unmount = mount(t, w.image, w.mount)
	for _, d := range []string{"live/d", "snapshots", "uppers"} {
		w.must(os.MkdirAll(filepath.Join(w.mount, d), 0o755))
	}
	w.must(os.WriteFile(w.at("a"), []byte("first"), 0o644))
	w.open()
	_, err := w.keeper.Write(t.Context(), wire.WriteRequest{Path: "zero"}, strings.NewReader("zero")) // there is a trash from then on
	w.must(err)
	_, err = w.keeper.Checkpoint(t.Context(), wire.CheckpointRequest{})
	w.must(err)
	w.acts = nil
	w.shot(0, false)
	return w
}

func (w *puts) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w *puts) at(p string) string { return filepath.Join(w.mount, "live", p) }

func (w *puts) open() {
	w.t.Helper()
	var err error
	w.boots++
	boot := fmt.Sprint("boot ", w.boots)
	w.keeper, err = engine.Open(w.t.Context(), engine.Options{Boot: func() (string, error) { return boot, nil }, Root: w.at("."), Snapshots: filepath.Join(w.mount, "snapshots"), Uppers: filepath.Join(w.mount, "uppers"), Crash: w.within})
	w.must(err)
}

// within takes a shot at some of the crash points that an act passes.
func (w *puts) within(point string) {
	if w.keeper == nil || len(w.acts) == 0 {
		return
	}
	switch point {
	case "trash.intended":
		w.shot(len(w.acts)-1, true)
	case "trash.exchanged", "trash.moved", "deed.done":
		w.shot(len(w.acts), true)
	}
}

// step does something that is chosen at random.
func (w *puts) step(dice *rand.Rand) {
	w.t.Helper()
	pick := func() string { return putPaths[dice.IntN(len(putPaths))] }
	ops := []string{"put", "put", "put", "remove", "remove", "move", "move", "write", "over", "unlink", "rename"}
	w.do([]string{ops[dice.IntN(len(ops))], pick(), pick()})
}

// do puts, removes or moves a file, or does what a program could do; if that is impossible, it
// changes nothing.
func (w *puts) do(step []string) {
	w.t.Helper()
	n := len(w.did)
	op, p := step[0], step[1]
	before := len(w.shots)
	var err error
	switch op {
	case "put":
		text := fmt.Sprintf("<put %d>", n)
		w.acts = append(w.acts, act{op: op, path: p, text: text})
		_, err = w.keeper.Write(w.t.Context(), wire.WriteRequest{Path: wire.Path(p)}, strings.NewReader(text))
	case "remove":
		w.acts = append(w.acts, act{op: op, path: p})
		req := wire.RemoveRequest{Path: wire.Path(p)}
		if is, serr := w.keeper.Stat(w.t.Context(), p); serr == nil {
			req.If = is.ID // of a folder that is none
		}
		_, err = w.keeper.Remove(w.t.Context(), req)
	case "move":
		w.acts = append(w.acts, act{op: op, path: step[2], from: p})
		_, err = w.keeper.Move(w.t.Context(), wire.MoveRequest{From: wire.Path(p), To: wire.Path(step[2])})
	case "write": // as editors do
		err = os.WriteFile(w.at("tmp"), []byte(fmt.Sprintf("<program %d>", n)), 0o644)
		if err == nil {
			err = os.Rename(w.at("tmp"), w.at(p))
		}
	case "over":
		var f *os.File
		if f, err = os.OpenFile(w.at(p), os.O_WRONLY|os.O_TRUNC, 0); err == nil {
			fmt.Fprintf(f, "<program %d>", n)
			w.must(f.Close())
		}
	case "unlink":
		err = os.RemoveAll(w.at(p))
	case "rename":
		err = os.Rename(w.at(p), w.at(step[2]))
	}
	did := strings.Join(step, " ")
	if err != nil {
		did += " refused"
		if op == "put" || op == "remove" || op == "move" {
			w.acts, w.shots = w.acts[:len(w.acts)-1], w.shots[:before]
		}
	}
	w.did = append(w.did, did)
	w.shot(len(w.acts), false)
}

// shot keeps the present disk, with everything synced, and the journal.
func (w *puts) shot(done int, within bool) {
	w.t.Helper()
	s := shot{image: fmt.Sprintf("%s.%d", w.image, len(w.shots)), done: done, known: len(w.acts), within: within}
	dir, err := os.Open(w.mount)
	w.must(err)
	w.must(unix.Syncfs(int(dir.Fd())))
	w.must(dir.Close())
	run(w.t, "cp", "--sparse=always", w.image, s.image)
	s.journal, err = os.ReadFile(w.at(".git/choir/journal"))
	w.must(err)
	w.shots = append(w.shots, s)
}

func (w *puts) stop() {
	w.t.Helper()
	w.must(w.keeper.Close())
	w.keeper = nil
	w.unmount()
}

// picture is what the files of the tree hold, by their paths.
func (w *puts) picture() map[string]string {
	w.t.Helper()
	out := map[string]string{}
	w.must(filepath.WalkDir(w.at("."), func(file string, en os.DirEntry, err error) error {
		p, rerr := filepath.Rel(w.at("."), file)
		if err != nil || rerr != nil || p == "." {
			return errors.Join(err, rerr)
		}
		if p == ".git" {
			return filepath.SkipDir
		}
		if en.IsDir() {
			out[p] = "/"
			return nil
		}
		b, err := os.ReadFile(file)
		out[p] = string(b)
		return err
	}))
	return out
}

// again does an act with a picture.
func (a act) again(tree map[string]string) {
	folders := func() bool {
		for d := path.Dir(a.path); d != "."; d = path.Dir(d) {
			if is, there := tree[d]; there && is != "/" {
				return false
			}
		}
		for d := path.Dir(a.path); d != "."; d = path.Dir(d) {
			tree[d] = "/"
		}
		return true
	}
	gone := func(p string) {
		maps.DeleteFunc(tree, func(q, _ string) bool { return q == p || strings.HasPrefix(q, p+"/") })
	}
	switch a.op {
	case "put":
		if folders() {
			gone(a.path)
			tree[a.path] = a.text
		}
	case "remove":
		gone(a.path)
	case "move":
		if _, there := tree[a.from]; !there || !folders() {
			return
		}
		gone(a.path)
		moved := map[string]string{}
		for q, is := range tree {
			if q == a.from || strings.HasPrefix(q, a.from+"/") {
				moved[a.path+q[len(a.from):]] = is
			}
		}
		gone(a.from)
		maps.Copy(tree, moved)
	}
}

// cuts checks each disk with the journal of the same instant and with the last journal, and in
// the long form with each later one.
func (w *puts) cuts() {
	w.t.Helper()
	for disk, s := range w.shots {
		for journal := disk; journal < len(w.shots); journal++ {
			if long > 0 || journal == len(w.shots)-1 || journal == disk && s.within {
				w.cut(disk, journal)
			}
		}
	}
}

// cut checks the disk of one instant with the journal of a later one.
func (w *puts) cut(disk, journal int) {
	w.t.Helper()
	on, then := w.shots[disk], w.shots[journal]
	run(w.t, "cp", "--sparse=always", on.image, w.image)
	w.unmount = mount(w.t, w.image, w.mount)
	defer w.stop()
	want := w.picture()
	for _, a := range w.acts[on.done:then.known] {
		a.again(want)
	}
	w.must(os.WriteFile(w.at(".git/choir/journal"), then.journal, 0o600))
	w.must(os.WriteFile(w.at(".git/choir/open"), []byte("another boot"), 0o644))
	w.open()
	_, err := w.keeper.Heal(w.t.Context())
	w.must(err)
	if got := w.picture(); !maps.Equal(got, want) {
		w.t.Errorf("the disk of %+d and the journal of %+d acts, of %q (of %+v): the tree is\n%q; want\n%q", on.done, then.known, w.did, w.acts, got, want)
	}
	_, err = w.keeper.Checkpoint(w.t.Context(), wire.CheckpointRequest{})
	w.must(err)
	all, err := exec.Command("sh", "-c", `cd "$1" && git log -p --format= && find .git/choir/trash -type f -path '*/content*' -exec cat {} +`, "sh", w.at(".")).Output()
	if err != nil && len(all) == 0 {
		w.t.Fatal(err)
	}
	for _, a := range w.acts[:then.known] {
		if a.op == "put" && !bytes.Contains(all, []byte(a.text)) {
			w.t.Errorf("the disk of %d and the journal of %d acts, of %q: %s is nowhere", on.done, then.known, w.did, a.text)
		}
	}
}
