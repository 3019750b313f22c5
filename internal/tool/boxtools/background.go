package boxtools

import (
	"context"
	"crypto/rand"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"choir.dev/choiros/internal/awake"
	"choir.dev/choiros/internal/harness"
)

// Bounds of commands in the background.
const (
	maxRunning = 8  // at a time
	maxKept    = 32 // that have ended, of which something can still be asked
)

// jobs are the commands in the background. It is safe for concurrent use.
type jobs struct {
	mu   sync.Mutex
	mark string // in all handles, so that one of a box before is not taken for one of this box
	n    int
	list []*job
	over bool
}

// job is a command in the background.
type job struct {
	handle  string
	command string
	began   time.Time
	out     *sink
	cancel  context.CancelFunc
	done    chan struct{} // closed when it has ended, and code and why are set
	code    int
	why     string

	mu     sync.Mutex
	looked int64 // bytes of its output that were asked for
}

func (j *job) running() bool {
	select {
	case <-j.done:
		return false
	default:
		return true
	}
}

// background starts a command and does not wait for it. It starts where the shell is, and leaves nothing
// to the shell.
func (b *Box) background(command string, p process, note string) (Result, error) {
	b.jobs.mu.Lock()
	defer b.jobs.mu.Unlock()
	running := 0
	for _, j := range b.jobs.list {
		if j.running() {
			running++
		}
	}
	if running >= maxRunning || b.jobs.over {
		return Result{}, refuse("%d commands run in the background already; end one of them with bash_kill first: %s", running, b.jobs.names())
	}
	if b.jobs.mark == "" {
		b.jobs.mark = strings.ToLower(rand.Text()[:4])
	}
	b.jobs.n++
	j := &job{handle: fmt.Sprintf("bg%d_%s", b.jobs.n, b.jobs.mark), command: command, began: time.Now(), out: b.kept.sink(), done: make(chan struct{})}
	p.stdout, p.stderr = j.out, j.out
	ctx, cancel := context.WithCancel(context.Background())
	j.cancel = cancel
	b.jobs.list = append(b.jobs.list, j)
	b.jobs.drop()
	go func() { // jobs.end waits for it
		defer close(j.done)
		ran, why := start(ctx, p)
		if ctx.Err() != nil {
			why = "killed"
		}
		_, _ = j.out.Write([]byte(ran.Stderr)) // never fails
		j.out.end(true)
		j.code, j.why = ran.ExitCode, why
	}()
	return Result{OK: true, Output: fmt.Sprintf("%srunning in the background as %s%s; bash_output shows what it writes, bash_kill ends it\n", note, j.handle, b.within(p.dir))}, nil
}

// drop forgets the oldest commands that have ended, if they are too many.
func (j *jobs) drop() {
	ended := 0
	for i := len(j.list) - 1; i >= 0; i-- {
		if j.list[i].running() {
			continue
		}
		if ended++; ended > maxKept {
			j.list[i].out.close()
			j.list = slices.Delete(j.list, i, i+1)
		}
	}
}

// names lists the handles with what they run.
func (j *jobs) names() string {
	var out []string
	for _, job := range j.list {
		state := "running"
		if !job.running() {
			state = ended(job.code, job.why)
		}
		out = append(out, fmt.Sprintf("%s (%s): %s", job.handle, state, harness.Clip(strings.ReplaceAll(job.command, "\n", " "), 200)))
	}
	if len(out) == 0 {
		return "(none)"
	}
	return "\n" + strings.Join(out, "\n")
}

func (b *Box) job(handle string) (*job, error) {
	b.jobs.mu.Lock()
	defer b.jobs.mu.Unlock()
	for _, j := range b.jobs.list {
		if j.handle == handle {
			return j, nil
		}
	}
	return nil, refuse("this box has no command %s in the background: it ended long ago, or ran in a box that has been replaced, with which it ended; these are known: %s", handle, b.jobs.names())
}

type outputArgs struct {
	Handle string `json:"handle"`
	WaitS  int    `json:"wait_s"`
}

// bashOutput shows what a command in the background has written since the last look.
func (b *Box) bashOutput(ctx context.Context, a outputArgs) (Result, error) {
	if a.Handle == "" {
		b.jobs.mu.Lock()
		defer b.jobs.mu.Unlock()
		return Result{OK: true, Output: "commands in the background: " + b.jobs.names() + "\n"}, nil
	}
	j, err := b.job(a.Handle)
	if err != nil {
		return Result{}, err
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if a.WaitS > 0 {
		waiting, cancel := awake.WithTimeout(ctx, time.Duration(a.WaitS)*time.Second)
		defer cancel()
		select {
		case <-j.done:
		case <-j.out.next(j.looked):
		case <-waiting.Done():
		}
	}
	// The time tells one look from another: a loop that gets the same answer again and again is stopped.
	res := Result{OK: true, Output: fmt.Sprintf("%s is running, for %.1f s\n", j.handle, time.Since(j.began).Seconds())}
	if !j.running() {
		res.Output = j.handle + " has ended, " + ended(j.code, j.why) + "\n"
	}
	text, n := j.out.since(j.looked)
	where := ""
	if n > keptShort {
		where = j.out.told()
	}
	if n == j.looked {
		text = "(nothing new)\n"
	}
	j.looked = n
	text, res.Truncated = show(text, where)
	res.Output += text
	if changed := b.changedBy("a command in the background"); changed != "" {
		res.Output += "\n" + changed
	}
	return res, nil
}

type killArgs struct {
	Handle string `json:"handle"`
}

// bashKill ends a command in the background with everything in its process group.
func (b *Box) bashKill(ctx context.Context, a killArgs) (Result, error) {
	j, err := b.job(a.Handle)
	if err != nil {
		return Result{}, err
	}
	was := j.running()
	j.cancel()
	select {
	case <-j.done: // a killed group ends, and its output is not waited for longer than two seconds
	case <-ctx.Done():
		return Result{}, ctx.Err()
	}
	if !was {
		return Result{OK: true, Output: j.handle + " had ended before, " + ended(j.code, j.why) + "\n"}, nil
	}
	return Result{OK: true, Output: j.handle + " is killed; bash_output shows what it wrote at last\n"}, nil
}

// end ends all and waits for them; afterwards none is started.
func (j *jobs) end() {
	j.mu.Lock()
	j.over = true
	list := slices.Clone(j.list)
	j.mu.Unlock()
	for _, job := range list {
		job.cancel()
	}
	for _, job := range list {
		<-job.done
		job.out.close()
	}
}
