package chaos_test

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"choir.dev/choiros/internal/client"
	"choir.dev/choiros/test/choirtest"
)

// inside is set in a process with its own mounts, which end with it.
const inside = "CHOIR_CHAOS_MOUNTS"

// TestPowerCuts lets a user work on a disk that records every write, and makes from the record what
// power cuts at many instants would have left. On each, choir is started: everything that was
// acknowledged before that instant must be there. The control is a disk that acknowledges flushes
// that it has not done: the loss must be noticed, or the check finds nothing.
func TestPowerCuts(t *testing.T) {
	if !mountable(t) {
		return
	}
	worlds, images, lies := 1, 6, 3
	if long > 0 {
		worlds, images, lies = 3, 18, 4
	}
	for n := range worlds {
		p := newPower(t, random(fmt.Sprint("power ", n)))
		p.work(50+40*n, writes, commands, checkpoints, prompts, larges)
		for i := range images {
			at := p.instant(i, images)
			t.Run(fmt.Sprintf("world %d, the power fails after %d of %d writes and flushes", n, at, p.last), func(t *testing.T) { p.cut(t, at) })
		}
		t.Run("a disk that lies", func(t *testing.T) { p.control(t, lies) })
	}
}

// TestPowerCutsAmongPushes does the same while a user pushes into the computer's own files.
func TestPowerCutsAmongPushes(t *testing.T) {
	if !mountable(t) {
		return
	}
	images := 5
	if long > 0 {
		images = 25
	}
	p := newPower(t, random("power pushes"))
	p.work(14, func(ctx context.Context, w *world, dice *rand.Rand) error {
		n := w.next()
		content := "pushed " + n
		if dice.IntN(2) == 0 { // then it comes as a pack
			content += strings.Repeat(fmt.Sprintf(" %x", dice.Uint64()), 100_000)
			content = content[:1<<20-64] // with its trees that is more than is kept as files, and still read whole
		}
		return w.pushFiles(ctx, "workspace/u/pushed"+n+".txt", content)
	})
	for i := range images {
		at := p.instant(i+1, images+1) // not in the first start
		t.Run(fmt.Sprintf("the power fails after %d of %d writes and flushes", at, p.last), func(t *testing.T) { p.cut(t, at) })
	}
}

// mountable reports whether this process may mount disks. The test's first process may not: it runs
// the test again in another one, and fails if that fails. Descendants of our processes must not
// outlive them, however they end.
func mountable(t *testing.T) bool {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("power cuts were not tried: to mount a recorded disk takes root")
	}
	if os.Getenv(inside) != "" {
		return true
	}
	t.Parallel()
	cmd := exec.CommandContext(t.Context(), "unshare", "--mount", "--propagation", "private", "--",
		os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v", "-test.timeout=30m")
	cmd.Env = append(os.Environ(), inside+"=1", fmt.Sprint("CHOIR_CHAOS_SEED=", seed))
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if !strings.Contains(string(out), "--- PASS: "+t.Name()) {
		t.Fatalf("nothing was tried:\n%s", out)
	}
	t.Logf("%s", out)
	return false
}

// power is a world on a recorded disk.
type power struct {
	*world
	disk  *disk
	dice  *rand.Rand
	mount string            // where images are mounted for the checks
	begin map[string]values // the contents of the tree at the beginning
	ready int               // the instant at which the computer was awake
	last  int               // the instant at which the work ended
}

func newPower(t *testing.T, dice *rand.Rand) *power {
	t.Helper()
	d := newDisk(t, 1<<30)
	p := &power{disk: d, dice: dice, mount: filepath.Join(d.dir, "cut")}
	if err := os.Mkdir(p.mount, 0o755); err != nil {
		t.Fatal(err)
	}
	p.world = newWorldAt(t, filepath.Join(d.path(), "data"), d.now)
	p.ready = d.now()
	p.begin = maps.Clone(p.tree.known)
	p.tree.clock = d.now
	return p
}

// work has workers do what a user does until the given number of things were acknowledged, and then
// stops choir in an orderly way.
func (p *power) work(acknowledged int, users ...func(context.Context, *world, *rand.Rand) error) {
	p.t.Helper()
	ctx, cancel := p.soon()
	defer cancel()
	var workers sync.WaitGroup
	workers.Go(func() {
		defer cancel()
		for len(p.witness.testify().facts) < acknowledged && ctx.Err() == nil {
			time.Sleep(5 * time.Millisecond)
		}
	})
	for i, worker := range users {
		own := random(fmt.Sprint("power worker ", i))
		workers.Go(func() {
			for ctx.Err() == nil {
				if err := worker(ctx, p.world, own); err != nil && ctx.Err() == nil {
					p.t.Errorf("at work: %v", err)
					return
				}
			}
		})
	}
	workers.Wait()
	p.last = p.disk.now()
	p.in.Stop(p.t)
	known := p.witness.testify()
	p.t.Logf("%d writes and flushes, %d acknowledgements, %d events seen, %d prompts, %d large files", p.last, len(known.facts), len(known.seen), len(p.prompts), len(p.large))
}

// instant chooses when the power fails: during the first start, or right after an acknowledgement,
// where a lost write shows.
func (p *power) instant(i, of int) int {
	switch {
	case i == 0:
		return 1 + p.dice.IntN(p.ready)
	case i%2 == 0:
		return p.ready + p.dice.IntN(p.last-p.ready)
	}
	var at []int
	for _, f := range p.witness.facts {
		at = append(at, f.at)
	}
	for _, s := range p.tree.told {
		if s.certain {
			at = append(at, s.at)
		}
	}
	slices.Sort(at)
	// One is chosen from each part of the work.
	part := max(1, len(at)/of)
	return at[min(len(at)-1, i*part+p.dice.IntN(part))]
}

// after returns the world that a power cut leaves, with what is known of it.
func (p *power) after(t *testing.T, at, lies int) (w *world, unmount func(), err error) {
	t.Helper()
	image := filepath.Join(p.disk.dir, "cut.img")
	p.disk.failure(t, at, lies, p.dice, image)
	if unmount, err = tryMount(t, image, p.mount); err != nil {
		return nil, nil, err
	}
	w = &world{t: t, data: filepath.Join(p.mount, "data"), crash: p.crash, plans: p.plans, cid: p.cid, initial: p.initial,
		tree: p.tree.until(at, p.begin), witness: p.witness.until(at)}
	t.Cleanup(w.witness.close)
	if open := filepath.Join(w.gitDir(), "choir", "open"); at >= p.ready {
		// A machine that was without power has another boot id.
		if err := os.WriteFile(open, []byte("the boot before"), 0o644); err != nil {
			return nil, unmount, err
		}
	}
	w.large = largeUntil(p.large, at)
	for _, q := range p.prompts {
		if q.begun > at {
			continue
		}
		then := *q
		if q.acknowledged > at || q.acknowledged == 0 {
			then.run = ""
		}
		w.prompts = append(w.prompts, &then)
	}
	return w, unmount, nil
}

// cut compares what is there after a power cut with what was acknowledged.
func (p *power) cut(t *testing.T, at int) {
	w, _, err := p.after(t, at, 0)
	if err != nil {
		t.Fatal(err)
	}
	w.start()
	defer w.c.Close()
	defer w.in.Stop(t)
	if at < p.ready {
		// Nothing was acknowledged yet, but a computer must exist.
		ctx, cancel := w.soon()
		defer cancel()
		if info, err := w.c.Info(ctx); err != nil || info.ID == "" {
			t.Errorf("during the first start: %v", err)
		}
		return
	}
	w.verify("after the power cut", true)
	if t.Failed() {
		return
	}
	w.checkDeep()
	histogram.add("power cut", "nothing lost")
	seen := w.witness.testify()
	t.Logf("%d facts, %d events, %d files", len(seen.facts), len(seen.seen), len(w.tree.known))
}

// control cuts the power of a disk that lies.
func (p *power) control(t *testing.T, tries int) {
	for range tries {
		w, unmount, err := p.after(t, p.last, 12+p.dice.IntN(60))
		if err == nil { // otherwise ext4 itself has noticed
			err = w.lost()
			unmount()
		}
		if err != nil {
			histogram.add("power cut on a disk that lies", "noticed")
			t.Logf("noticed: %.300v", err)
			return
		}
		histogram.add("power cut on a disk that lies", "not noticed")
	}
	t.Errorf("%d times a disk did not do flushes that it had acknowledged, and nothing was missed: the look sees nothing", tries)
}

// lost returns an error that says what is missing, or nil.
func (w *world) lost() error {
	in, err := choirtest.TryStart(w.t, w.options())
	if err != nil {
		return fmt.Errorf("choir did not start: %w", err)
	}
	defer in.Stop(w.t)
	w.in = in
	if w.c, err = client.New(in.URL, in.Token, string(w.cid)); err != nil {
		return err
	}
	defer w.c.Close()
	ctx, cancel := context.WithTimeout(w.t.Context(), patience)
	defer cancel()
	return w.check(ctx, false)
}
