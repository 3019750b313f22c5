package workspace_test

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/sandbox"
	"choir.dev/choiros/internal/sandbox/local"
	"choir.dev/choiros/internal/workspace"
	"choir.dev/choiros/internal/workspace/keeper/engine"
	"choir.dev/choiros/internal/workspace/keeper/httpapi"
	"choir.dev/choiros/internal/workspace/keeper/wire"
)

// TestMain also serves as the keeper process that the race kills.
func TestMain(m *testing.M) {
	if spec := os.Getenv("WORKSPACE_KEEPER"); spec != "" {
		if err := serveKeeper(spec); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// keeperSpec says in which directory a keeper process works, and at the n-th pass of which point it
// ends.
type keeperSpec struct {
	Dir, Socket, Point string
	Nth                int32
}

func serveKeeper(raw string) error {
	var s keeperSpec
	if err := json.Unmarshal([]byte(raw), &s); err != nil {
		return err
	}
	var seen atomic.Int32
	e, err := engine.Open(context.Background(), engine.Options{
		Root: filepath.Join(s.Dir, "workspace"), Snapshots: filepath.Join(s.Dir, "snapshots"), Uppers: filepath.Join(s.Dir, "boxes"),
		Crash: func(point string) {
			if point == s.Point && seen.Add(1) == s.Nth {
				_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
				select {}
			}
		},
	})
	if err != nil {
		return err
	}
	l, err := net.Listen("unix", s.Socket)
	if err != nil {
		return err
	}
	return http.Serve(l, httpapi.Handler(e))
}

// mortal is a workspace whose keeper is a process that can be killed.
type mortal struct {
	t       *testing.T
	dir     string
	log     *log
	started int
	cmd     *exec.Cmd
	died    chan struct{}
	volumes *local.Volumes
	*workspace.Workspace
}

func (m *mortal) at(v sandbox.Volume) string {
	m.t.Helper()
	p, err := m.volumes.Path(v)
	if err != nil {
		m.t.Fatal(err)
	}
	return p
}

// start starts a keeper and opens the workspace behind it, which finishes what the last keeper left
// unfinished. The keeper may die at its point while doing so.
func (m *mortal) start(ctx context.Context, point string, nth int32) error {
	m.started++
	spec := keeperSpec{Dir: m.dir, Socket: filepath.Join(m.dir, fmt.Sprintf("s%d", m.started)), Point: point, Nth: nth}
	raw, err := json.Marshal(spec)
	if err != nil {
		return err
	}
	var stderr strings.Builder
	m.cmd = exec.Command(os.Args[0])
	m.cmd.Env = append(os.Environ(), "WORKSPACE_KEEPER="+string(raw))
	m.cmd.Stderr = &stderr
	m.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := m.cmd.Start(); err != nil {
		return err
	}
	died, cmd := make(chan struct{}), m.cmd
	m.died = died
	go func() {
		defer close(died)
		var exit *exec.ExitError
		if err := cmd.Wait(); errors.As(err, &exit) && exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
			m.t.Errorf("the keeper ended: %v\n%s", err, stderr.String())
		}
	}()
	for {
		if c, err := net.Dial("unix", spec.Socket); err == nil {
			if err := c.Close(); err != nil {
				return err
			}
			break
		}
		select {
		case <-died:
			return errDied
		case <-time.After(2 * time.Millisecond):
		}
	}
	rt := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "unix", spec.Socket)
	}}
	if m.volumes == nil {
		if m.volumes, err = local.OpenVolumes(local.VolumesOptions{Dir: m.dir}); err != nil {
			return err
		}
		m.t.Cleanup(func() {
			if err := m.volumes.Close(); err != nil {
				m.t.Error(err)
			}
		})
	}
	m.Workspace, err = workspace.Open(ctx, workspace.Options{
		CID: cid, Keeper: wire.NewClient(rt, nil), Log: m.log, Volumes: m.volumes, AutoInterval: -1, AutoTasks: -1,
	})
	if err != nil {
		m.Workspace = nil
		select {
		case <-died:
			return errDied
		case <-time.After(5 * time.Second):
			return err
		}
	}
	return nil
}

var errDied = errors.New("the keeper died")

func (m *mortal) kill() {
	_ = m.cmd.Process.Kill() // it may have died by itself
	<-m.died
	if m.Workspace != nil {
		if err := m.Close(); err != nil {
			m.t.Error(err)
		}
		m.Workspace = nil
	}
}

// versions are the versions of files that were acknowledged: whole files by content, and lines.
type versions struct {
	mu    sync.Mutex
	whole map[string]string // from content to whoever wrote it
	lines map[string]string
	puts  map[string]string // from content to path, for every put that was tried
	n     int
	moves atomic.Int32 // including those that brought something back from the trash
	backs atomic.Int32
}

func (v *versions) next() int { v.mu.Lock(); defer v.mu.Unlock(); v.n++; return v.n }

func (v *versions) note(m map[string]string, what, who string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	m[what] = who
}

// TestRaceOfEverybodyOverTheSameFiles has users put files, commands write to them in every way that
// programs do, tasks publish and restores go back, all on the same files. Meanwhile files move away
// and back, go to the trash and come back from it, and the keeper is killed, both at the points
// where a file has just been displaced and at any other time. Afterwards every version that was
// acknowledged must be found complete, in a commit, in the trash or live, and every put and move
// that took effect must have its event.
//
// CHOIR_RACE is the number of rounds, and CHOIR_RACE_SEED determines a run's choices.
func TestRaceOfEverybodyOverTheSameFiles(t *testing.T) {
	rounds, seed := 6, rand.Uint64()
	if testing.Short() {
		rounds = 2
	}
	for name, set := range map[string]func(string) error{
		"CHOIR_RACE":      func(s string) (err error) { rounds, err = strconv.Atoi(s); return err },
		"CHOIR_RACE_SEED": func(s string) (err error) { seed, err = strconv.ParseUint(s, 10, 64); return err },
	} {
		if s := os.Getenv(name); s != "" {
			if err := set(s); err != nil {
				t.Fatalf("%s is %q: %v", name, s, err)
			}
		}
	}
	t.Logf("race: %d rounds, seed %d (CHOIR_RACE_SEED=%d chooses the same again)", rounds, seed, seed)
	m := &mortal{t: t, dir: t.TempDir(), log: &log{}}
	for _, d := range []string{"workspace/workspace", "snapshots", "boxes"} {
		if err := os.MkdirAll(filepath.Join(m.dir, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 3 {
		write(t, filepath.Join(m.dir, "workspace", racePath(i)), raceText("first "+strconv.Itoa(i)))
	}
	v := &versions{whole: map[string]string{}, lines: map[string]string{}, puts: map[string]string{}}
	rng := rand.New(rand.NewPCG(seed, 0))
	points := []string{
		"trash.exchanged", "trash.intended", "trash.moved", "apply.exchanged", "apply.moved", "apply.step", "apply.placed", "apply.done",
		"commit.written", "commit.done", "publish.started", "restore.safe", "deed.meant", "deed.done",
	}
	deaths := map[string]int{}
	for round := range rounds {
		point, nth := "", int32(0)
		if rng.IntN(3) > 0 {
			point, nth = points[rng.IntN(len(points))], rng.Int32N(3)+1
		}
		if err := m.start(t.Context(), point, nth); errors.Is(err, errDied) {
			deaths["at a start"]++
			m.kill()
			if err := m.start(t.Context(), "", 0); err != nil {
				t.Fatal(err)
			}
		} else if err != nil {
			t.Fatal(err)
		}
		deaths[race(m, v, rng, round)+" "+point]++
		m.kill()
		if round%50 == 49 || round == rounds-1 {
			if err := m.start(t.Context(), "", 0); err != nil {
				t.Fatal(err)
			}
			found(t, m, v)
			m.kill()
			if t.Failed() {
				t.Fatalf("after round %d", round)
			}
		}
	}
	t.Logf("%d whole versions and %d lines were acknowledged, %d files moved and %d came back from the trash; deaths: %v", len(v.whole), len(v.lines), v.moves.Load(), v.backs.Load(), deaths)
	if len(v.whole) < rounds {
		t.Errorf("only %d versions were acknowledged in %d rounds: this race is none", len(v.whole), rounds)
	}
}

func racePath(i int) string { return fmt.Sprintf("workspace/f%d", i) }

func raceText(token string) string { return "<" + token + ">\n\n\n\n\n\n\n\nend\n" }

// race lets everybody work until the keeper dies.
func race(m *mortal, v *versions, rng *rand.Rand, round int) string {
	ctx, cancel := context.WithTimeout(m.t.Context(), time.Duration(30+rng.IntN(700))*time.Millisecond)
	defer cancel()
	seeds := [5]uint64{rng.Uint64(), rng.Uint64(), rng.Uint64(), rng.Uint64(), rng.Uint64()}
	var wg sync.WaitGroup
	for i, act := range []func(context.Context, *mortal, *versions, *rand.Rand, string) error{racePut, racePut, raceMove, raceCommand, raceTask} {
		wg.Go(func() {
			own := rand.New(rand.NewPCG(seeds[i], uint64(i)))
			for n := 0; ctx.Err() == nil; n++ {
				select {
				case <-m.died:
					return
				default:
				}
				// An action that failed, because the keeper died or somebody else was faster, is
				// not acknowledged.
				_ = act(ctx, m, v, own, fmt.Sprintf("%d-%d-%d", round, i, n))
			}
		})
	}
	how := "killed"
	select {
	case <-ctx.Done():
	case <-m.died:
		how = "died"
	}
	_ = m.cmd.Process.Kill()
	cancel()
	wg.Wait()
	return how
}

func racePut(ctx context.Context, m *mortal, v *versions, rng *rand.Rand, name string) error {
	p := racePath(rng.IntN(3))
	if rng.IntN(12) == 0 {
		_, err := m.Remove(ctx, p, "", contract.Person(""))
		return err
	}
	text := raceText(fmt.Sprintf("put %s %d", name, v.next()))
	o := workspace.WriteOptions{}
	if rng.IntN(3) == 0 {
		if st, err := m.Stat(ctx, p); err == nil {
			o.If = st.ID
		}
	}
	v.note(v.puts, text, p)
	if _, err := m.Write(ctx, p, strings.NewReader(text), o); err != nil {
		return err
	}
	v.note(v.whole, text, "put of "+p)
	return nil
}

// raceMove moves a file to a name that nothing had before, or moves such a file back, or brings
// something back from the trash.
func raceMove(ctx context.Context, m *mortal, v *versions, rng *rand.Rand, name string) error {
	p := racePath(rng.IntN(3))
	switch rng.IntN(3) {
	case 0:
		if err := m.Move(ctx, p, "workspace/moved/m"+name, contract.Person("")); err != nil {
			return err
		}
		v.moves.Add(1)
	case 1:
		files, _, err := m.Files(ctx, "workspace/moved", "", 0)
		if err != nil || len(files) == 0 {
			return err
		}
		if rng.IntN(2) == 0 {
			if _, err := m.Remove(ctx, p, "", contract.Person("")); err != nil {
				return err
			}
		}
		if err := m.Move(ctx, string(files[rng.IntN(len(files))].Path), p, contract.Person("")); err != nil {
			return err
		}
		v.moves.Add(1)
	default:
		r, err := m.Remove(ctx, p, "", contract.Person(""))
		if err != nil {
			return err
		}
		if _, err := m.Untrash(ctx, r.ID, "", contract.Person("")); err != nil {
			return err
		}
		v.backs.Add(1)
	}
	return nil
}

// raceCommand is what a command of the user's does to a file between the checkpoints before and
// after it.
func raceCommand(ctx context.Context, m *mortal, v *versions, rng *rand.Rand, name string) error {
	p := racePath(rng.IntN(3))
	file := filepath.Join(m.dir, "workspace", p)
	if _, err := m.Checkpoint(ctx, workspace.CheckpointRequest{Kind: contract.CheckpointBefore}); err != nil {
		return err
	}
	text := raceText("command " + name)
	appended := false
	switch rng.IntN(3) {
	case 0: // writes in place
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			return err
		}
	case 1: // saves as editors do
		tmp := filepath.Join(m.dir, "save")
		if err := os.WriteFile(tmp, []byte(text), 0o644); err != nil {
			return err
		}
		if err := os.Rename(tmp, file); err != nil {
			return err
		}
	default:
		text, appended = "<line "+name+">\n", true
		f, err := os.OpenFile(file, os.O_WRONLY|os.O_APPEND, 0)
		if err != nil {
			return err
		}
		_, err = io.WriteString(f, text)
		if err := errors.Join(err, f.Close()); err != nil {
			return err
		}
	}
	if _, err := m.Checkpoint(ctx, workspace.CheckpointRequest{Kind: contract.CheckpointAfter}); err != nil {
		return err
	}
	if appended {
		v.note(v.lines, text, "command in "+p)
	} else {
		v.note(v.whole, text, "command in "+p)
	}
	return nil
}

// raceTask publishes a task's edit of the last line, or restores an earlier checkpoint.
func raceTask(ctx context.Context, m *mortal, v *versions, rng *rand.Rand, name string) error {
	if rng.IntN(4) == 0 {
		list, err := m.Checkpoints(ctx, "", 20)
		if err != nil || len(list) == 0 {
			return err
		}
		_, err = m.Restore(ctx, workspace.RestoreRequest{To: list[rng.IntN(len(list))].Commit})
		return err
	}
	p := racePath(rng.IntN(3))
	o, err := m.Begin(ctx, "t"+name, "")
	if err != nil {
		return err
	}
	was, err := os.ReadFile(inLayers(m.at, o.Lower, p))
	if err != nil {
		was = []byte(raceText("nothing"))
	}
	line := "<task " + name + ">\n"
	lines := strings.SplitAfter(strings.TrimSuffix(string(was), "\n"), "\n")
	lines[len(lines)-1] = line
	if err := os.MkdirAll(filepath.Join(m.at(o.Upper), "workspace"), 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(m.at(o.Upper), p), []byte(strings.Join(lines, "")), 0o644); err != nil {
		return err
	}
	tree, err := m.Tree(ctx, o, "a task", "", "")
	if err != nil {
		return err
	}
	if _, err := m.Publish(ctx, workspace.PublishRequest{ID: "p" + name, Overlay: o, Tree: tree.Commit}); err != nil {
		return err
	}
	v.note(v.lines, line, "task in "+p)
	return m.Drop(ctx, o)
}

// found looks for every version that was acknowledged.
func found(t *testing.T, m *mortal, v *versions) {
	t.Helper()
	all := map[string]bool{}
	git := func(in string, args ...string) string {
		cmd := exec.CommandContext(t.Context(), "git", args...)
		cmd.Dir, cmd.Stdin = filepath.Join(m.dir, "workspace"), strings.NewReader(in)
		cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_SYSTEM=/dev/null")
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("git %v: %v", args, err)
		}
		return string(out)
	}
	ids := git("", "rev-list", "--all", "--objects", "--no-object-names", "--filter=object:type=blob")
	wanted := map[string]bool{}
	for id := range strings.FieldsSeq(ids) {
		wanted[id] = true
	}
	trash := filepath.Join(m.dir, "workspace/.git/choir/trash")
	entries, err := os.ReadDir(trash)
	if err != nil {
		t.Fatal(err)
	}
	for _, en := range entries {
		if b, err := os.ReadFile(filepath.Join(trash, en.Name(), "content")); err == nil {
			all[string(b)] = true
		}
	}
	out := git(strings.Join(slices.Collect(maps.Keys(wanted)), "\n")+"\n", "cat-file", "--batch")
	for out != "" {
		head, rest, _ := strings.Cut(out, "\n")
		f := strings.Fields(head)
		if len(f) != 3 {
			t.Fatalf("cat-file answered %q", head)
		}
		n, err := strconv.Atoi(f[2])
		if err != nil {
			t.Fatal(err)
		}
		if f[1] == "blob" {
			all[rest[:n]] = true
		}
		out = rest[n+1:]
	}
	live := map[string]string{} // from content to path
	paths := []string{racePath(0), racePath(1), racePath(2)}
	moved, err := os.ReadDir(filepath.Join(m.dir, "workspace/workspace/moved"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	for _, en := range moved {
		paths = append(paths, "workspace/moved/"+en.Name())
	}
	for _, p := range paths {
		if b, err := os.ReadFile(filepath.Join(m.dir, "workspace", p)); err == nil {
			live[string(b)] = p
			all[string(b)] = true
		}
	}
	var joined strings.Builder
	for text := range all {
		joined.WriteString(text)
	}
	for text, who := range v.whole {
		if !all[text] {
			t.Errorf("the %s, %.40q, is nowhere", who, text)
		}
	}
	for line, who := range v.lines {
		if !strings.Contains(joined.String(), line) {
			t.Errorf("the line of the %s, %q, is nowhere", who, line)
		}
	}
	told := map[string]bool{}
	for _, e := range m.log.all() {
		var d contract.FileWritten
		if e.Type == "file.written" && json.Unmarshal(e.Data, &d) == nil {
			told[string(d.SHA256)], told[d.Path] = true, true
		}
	}
	for text := range v.puts {
		if p, ok := live[text]; ok && !told[ref(text)] {
			t.Errorf("%s is as a put left it, %.40q, and no event says so", p, text)
		}
	}
	for _, en := range moved { // only moves make these names
		if p := "workspace/moved/" + en.Name(); !told[p] {
			t.Errorf("%s was moved there, and no event says so", p)
		}
	}
}

func ref(text string) string { return fmt.Sprintf("sha256:%x", sha256.Sum256([]byte(text))) }
