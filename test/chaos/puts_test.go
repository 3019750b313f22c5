package chaos_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"choir.dev/choiros/internal/workspace/keeper/engine"
	"choir.dev/choiros/internal/workspace/keeper/wire"
)

// TestPowerCutsAmongPuts has a keeper put files while programs change them, and cuts the power on a
// file system that keeps only what was synced and the order of changes of names: each state of the
// disk is combined with the keeper's journal of each later instant. Everything that was put after
// that state must be there, whatever the disk lost in between, and what was put before it is as the
// programs left it.
func TestPowerCutsAmongPuts(t *testing.T) {
	if !mountable(t) {
		return
	}
	worlds, steps := 2, 6
	if long > 0 {
		worlds, steps = 10, 9
	}
	for n := range worlds {
		t.Run(fmt.Sprint("world ", n), func(t *testing.T) {
			w := newPuts(t)
			dice := random(fmt.Sprint("puts ", n))
			for range steps {
				w.step(dice)
			}
			w.stop()
			for disk := range w.disks {
				for journal := disk; journal < len(w.disks); journal++ {
					w.cut(disk, journal)
				}
			}
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
	done    []string // what each step did
	acts    []act    // the puts that were acknowledged, by step
	disks   []string // images after each step, each synced
	journal [][]byte // the keeper's journal after each step
}

// act is a put, or a program's own change.
type act struct{ path, text string }

var putPaths = []string{"a", "b", "d/c"}

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
	w.must(w.put("zero", "zero")) // this makes the trash folder
	_, err := w.keeper.Checkpoint(t.Context(), wire.CheckpointRequest{})
	w.must(err)
	w.shot(act{})
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
	w.keeper, err = engine.Open(w.t.Context(), engine.Options{Root: w.at("."), Snapshots: filepath.Join(w.mount, "snapshots"), Uppers: filepath.Join(w.mount, "uppers")})
	w.must(err)
}

func (w *puts) put(p, text string) error {
	_, err := w.keeper.Write(w.t.Context(), wire.WriteRequest{Path: wire.Path(p)}, strings.NewReader(text))
	return err
}

// step puts a file, or does what a program could do; if that is impossible, it changes nothing.
func (w *puts) step(dice *rand.Rand) {
	w.t.Helper()
	n := len(w.disks)
	p, did := putPaths[dice.IntN(len(putPaths))], "refused"
	var a act
	switch dice.IntN(7) {
	case 0:
		did = "replaced"
		_ = os.WriteFile(w.at("tmp"), []byte(fmt.Sprintf("<program %d>", n)), 0o644)
		_ = os.Rename(w.at("tmp"), w.at(p))
	case 1:
		did = "removed"
		_ = os.Remove(w.at(p))
	case 2:
		p, did = "d", "moved"
		_ = os.Rename(w.at(p), w.at(fmt.Sprint("e", n)))
	case 3:
		did = "written over"
		if f, err := os.OpenFile(w.at(p), os.O_WRONLY|os.O_TRUNC, 0); err == nil {
			fmt.Fprintf(f, "<program %d>", n)
			w.must(f.Close())
		}
	default:
		if text := fmt.Sprintf("<put %d>", n); w.put(p, text) == nil {
			a, did = act{p, text}, "put"
		}
	}
	w.done = append(w.done, p+" "+did)
	w.shot(a)
}

// shot keeps the present disk, with everything synced, and the journal.
func (w *puts) shot(a act) {
	w.t.Helper()
	image := fmt.Sprintf("%s.%d", w.image, len(w.disks))
	dir, err := os.Open(w.mount)
	w.must(err)
	w.must(unix.Syncfs(int(dir.Fd())))
	w.must(dir.Close())
	run(w.t, "cp", "--sparse=always", w.image, image)
	journal, err := os.ReadFile(w.at(".git/choir/journal"))
	w.must(err)
	w.disks, w.journal, w.acts = append(w.disks, image), append(w.journal, journal), append(w.acts, a)
}

func (w *puts) stop() {
	w.t.Helper()
	w.must(w.keeper.Close())
	w.unmount()
}

// cut checks the disk of one instant with the journal of a later one.
func (w *puts) cut(disk, journal int) {
	w.t.Helper()
	run(w.t, "cp", "--sparse=always", w.disks[disk], w.image)
	w.unmount = mount(w.t, w.image, w.mount)
	defer w.stop()
	want := map[string]string{}
	for _, p := range putPaths {
		if b, err := os.ReadFile(w.at(p)); err == nil {
			want[p] = string(b)
		}
	}
	for _, a := range w.acts[disk+1 : journal+1] {
		if a.path != "" {
			want[a.path] = a.text
		}
	}
	w.must(os.WriteFile(w.at(".git/choir/journal"), w.journal[journal], 0o600))
	w.must(os.WriteFile(w.at(".git/choir/open"), []byte("another boot"), 0o644))
	w.open()
	_, err := w.keeper.Heal(w.t.Context())
	w.must(err)
	for _, p := range putPaths {
		if b, _ := os.ReadFile(w.at(p)); string(b) != want[p] {
			w.t.Errorf("the disk after %d and the journal after %d of %q: %s holds %q; want %q", disk, journal, w.done, p, b, want[p])
		}
	}
	_, err = w.keeper.Checkpoint(w.t.Context(), wire.CheckpointRequest{})
	w.must(err)
	all, err := exec.Command("sh", "-c", `cd "$1" && git log -p --format= && cat .git/choir/trash/*/content`, "sh", w.at(".")).Output()
	if err != nil && len(all) == 0 {
		w.t.Fatal(err)
	}
	for _, a := range w.acts[:journal+1] {
		if a.path != "" && !bytes.Contains(all, []byte(a.text)) {
			w.t.Errorf("the disk after %d and the journal after %d of %q: %s is nowhere", disk, journal, w.done, a.text)
		}
	}
}
