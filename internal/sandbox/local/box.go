package local

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/awake"
	"choir.dev/choiros/internal/defence"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/guest"
	"choir.dev/choiros/internal/guest/seal"
	"choir.dev/choiros/internal/process"
	"choir.dev/choiros/internal/sandbox"
	"choir.dev/choiros/internal/sandbox/local/cgroup"
	"choir.dev/choiros/internal/sandbox/local/launch"
	"choir.dev/choiros/internal/sandbox/local/seccomp"
	"choir.dev/choiros/internal/tail"
	"choir.dev/choiros/internal/tether"
)

// startLimit bounds how long a box may take from its start to its handshake.
const startLimit = 20 * time.Second

type box struct {
	computer *computer
	spec     sandbox.BoxSpec
	limits   sandbox.Limits
	mounts   []mount
	dir      string // the box's directory; run is in it
	run      string
	begin    time.Time

	cmd     *exec.Cmd
	group   *cgroup.Group
	pid     int // of the guest, as the host sees it; 0 until known
	pidfd   int // of the guest; -1 until known
	session *tether.Session
	tail    tail.Writer // the end of what the guest wrote to stderr
	disk    *sampler
	cleanup []func() error // run when everything in the box is dead

	mu      sync.Mutex
	ending  *sandbox.EndedError // the first reason
	err     error               // b.ending, once nothing is left
	unclean error               // what could not be removed
	done    chan struct{}
	owned   sync.WaitGroup // goroutines that end with the box
}

func (c *computer) open(ctx context.Context, spec sandbox.BoxSpec) (_ *box, err error) {
	ctx, cancel := awake.WithTimeout(ctx, startLimit)
	defer cancel()
	b := &box{
		tail:     tail.Writer{Max: 4096},
		computer: c, spec: spec, limits: withDefaults(spec.Kind, spec.Limits), begin: time.Now(), pidfd: -1, done: make(chan struct{}),
		dir: filepath.Join(c.dir, spec.ID),
	}
	b.run = filepath.Join(b.dir, runDir)
	if b.mounts, err = c.volumes.mounts(spec.Mounts); err != nil {
		return nil, err
	}
	var locks []*os.File
	defer func() {
		closeAll(locks)
		if err != nil {
			err = also(err, b.abandon())
		}
	}()
	if locks, err = b.prepare(); err != nil {
		return nil, err
	}
	o := &opening{computer: c, mounts: b.mounts, run: path.Join(boxesDir, spec.ID, runDir), next: lockFD + len(locks)}
	defer o.close()
	argv, launcher, err := o.command(spec, b.limits)
	if err != nil {
		return nil, err
	}
	if (b.limits.DiskBytes > 0 || b.limits.DiskInodes > 0) && b.writesDisk() && !defence.Off(defence.BoxDisk) {
		if b.disk, err = newSampler(b); err != nil {
			return nil, err
		}
		b.cleanup = append(b.cleanup, b.disk.close)
	}
	if c.driver.opened != nil {
		c.driver.opened()
	}
	p, err := newPipes(letsOf(spec.Kind, launcher))
	if err != nil {
		return nil, err
	}
	b.cmd = boxCommand(argv, launcher, slices.Concat(p.inherited(), locks, o.passed), p.reportW)
	if err := b.start(ctx, p, locks); err != nil {
		return nil, err
	}
	return b, nil
}

// prepare makes the box's directory, takes the box's locks, and makes its cgroup.
func (b *box) prepare() (locks []*os.File, err error) {
	c := b.computer
	run := path.Join(boxesDir, b.spec.ID, runDir)
	if err := c.root.Mkdir(run, 0o700); err != nil {
		return nil, err
	}
	b.cleanup = append(b.cleanup, func() error {
		err := c.remover.Take(c.root, run)
		_ = os.Remove(b.dir) // only if nothing else is in it
		return err
	})
	names := []string{filepath.Join(b.run, lockName)}
	if !b.spec.Lock.IsZero() {
		lock, err := c.volumes.lock(b.spec.Lock)
		if err != nil {
			return nil, err
		}
		names = append(names, lock)
	}
	for _, name := range names {
		f, err := lockFile(name)
		if err != nil {
			if len(locks) == 0 {
				b.cleanup = nil // it belongs to another box
			}
			return locks, err
		}
		locks = append(locks, f)
	}
	if err := writeOwner(b.run); err != nil {
		return locks, err
	}
	if b.group, err = c.driver.cgroups.Make(c.prefix+b.spec.ID, b.limits, socketLimit(b.limits.MemoryBytes)); err != nil {
		return locks, err
	}
	b.cleanup = append(b.cleanup, b.group.Remove)
	return locks, nil
}

func closeAll(files []*os.File) {
	for _, f := range files {
		_ = f.Close()
	}
}

// pipes connect a box that is starting: the tether, the spec, bubblewrap's reports, the
// filter, and stderr.
type pipes struct {
	near             net.Conn
	far, filter      *os.File
	specR, specW     *os.File
	infoR, infoW     *os.File
	reportR, reportW *os.File
}

// letsOf returns what a box's filter lets it do. The keeper watches the tree, and asks by leases
// whether anybody has a file open; what runs in its box is our own program and git.
func letsOf(kind contract.BoxKind, launcher bool) seccomp.Allowances {
	keeper := kind == contract.BoxKeeper
	return seccomp.Allowances{Watch: launcher || keeper, Lease: keeper}
}

func newPipes(lets seccomp.Allowances) (_ *pipes, err error) {
	p := &pipes{}
	defer func() {
		if err != nil {
			p.closeInherited()
			p.closeOwn()
		}
	}()
	if p.near, p.far, err = socketPair(); err != nil {
		return nil, err
	}
	for _, ends := range [][2]**os.File{{&p.specR, &p.specW}, {&p.infoR, &p.infoW}, {&p.reportR, &p.reportW}} {
		if *ends[0], *ends[1], err = os.Pipe(); err != nil {
			return nil, err
		}
	}
	p.filter, err = seccomp.File(lets)
	return p, err
}

// inherited returns the ends that the guest gets, in the order of their descriptors,
// without stderr.
func (p *pipes) inherited() []*os.File { return []*os.File{p.far, p.specR, p.filter, p.infoW} }

// closeInherited closes this process's copies of the inherited ends.
func (p *pipes) closeInherited() { closeAll(append(p.inherited(), p.reportW)) }

// closeOwn closes the ends that stay in this process, for a box that did not start.
func (p *pipes) closeOwn() {
	if p.near != nil {
		_ = p.near.Close()
	}
	closeAll([]*os.File{p.specW, p.infoR, p.reportR})
}

// boxCommand is the command that starts a box.
func boxCommand(argv []string, launcher bool, inherited []*os.File, stderr *os.File) *exec.Cmd {
	cmd := &exec.Cmd{Path: argv[0], Args: argv, Dir: "/", Env: []string{}, ExtraFiles: inherited, SysProcAttr: &syscall.SysProcAttr{}, Stderr: stderr}
	if launcher {
		launch.Namespaces(cmd.SysProcAttr)
	}
	if defence.Off(defence.BoxEnvironment) {
		cmd.Env = os.Environ()
	} else if launcher {
		cmd.Env = append(defence.LauncherEnv(), seal.Procs+"="+seal.One) // a second thread would be of no use to it
	}
	return cmd
}

// slackOf is by how much the kernel may wake a box's threads later than they ask for.
func slackOf(kind contract.BoxKind) time.Duration {
	if ownProgram(kind) {
		return process.Coarse
	}
	return process.Fine
}

// start starts the box's process and waits until its guest answers. Once the process has
// begun, only the box holds the locks.
func (b *box) start(ctx context.Context, p *pipes, locks []*os.File) error {
	defer p.closeInherited()
	c, spec := b.computer, b.spec
	token := tether.NewToken()
	given, err := json.Marshal(guest.Spec{
		Token: token.Encode(), Box: spec.ID, Kind: spec.Kind, Root: b.root(), Env: spec.Env, Proxy: spec.Proxy, ModelToken: spec.ModelToken, FileBytes: b.limits.DiskBytes, Processes: b.limits.Pids,
	})
	if err == nil {
		if err = c.driver.starter.start(b.cmd, b.group, slackOf(spec.Kind)); err != nil {
			err = b.unstarted(fmt.Errorf("start bubblewrap: %w", err), "")
		}
	}
	if err != nil {
		b.cmd = nil
		p.closeOwn()
		return err
	}
	p.closeInherited() // so that an end of file shows when the guest closes its ends
	closeAll(locks)
	b.owned.Go(func() { b.reap(p.reportR) })
	// The spec may be larger than a pipe's buffer, so it is written while this waits for
	// the guest; both end when the box does.
	b.owned.Go(func() {
		_, _ = p.specW.Write(given) // a guest that doesn't read it fails the handshake
		_ = p.specW.Close()
	})
	b.owned.Go(func() {
		<-b.done
		_ = p.specW.Close()
	})
	err = b.identify(ctx, p.infoR)
	_ = p.infoR.Close()
	if err != nil {
		return also(b.explain(err), p.near.Close())
	}
	session, err := tether.Accept(ctx, p.near, tether.Options{
		Token: token, Handler: spec.Handler, Limits: spec.TetherLimits, Logger: c.driver.opts.Logger,
	})
	if err != nil {
		return b.explain(err)
	}
	b.mu.Lock()
	b.session = session
	b.mu.Unlock()
	b.watch()
	return nil
}

func (b *box) root() string {
	if b.spec.Root != "" {
		return b.spec.Root
	}
	for _, m := range b.spec.Mounts {
		if m.Target == defaultRoot {
			return defaultRoot
		}
	}
	return home
}

func socketPair() (net.Conn, *os.File, error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("make the tether: %w", err)
	}
	mine := os.NewFile(uintptr(fds[0]), "tether")
	defer mine.Close()
	conn, err := net.FileConn(mine)
	if err != nil {
		return nil, nil, errors.Join(err, unix.Close(fds[1]))
	}
	return conn, os.NewFile(uintptr(fds[1]), "tether"), nil
}

// identify reads the guest's process id from bubblewrap's report and opens a pidfd of it.
func (b *box) identify(ctx context.Context, info *os.File) error {
	stop := context.AfterFunc(ctx, func() { _ = info.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	var said struct {
		Child int `json:"child-pid"`
	}
	if err := json.NewDecoder(io.LimitReader(info, 4096)).Decode(&said); err != nil || said.Child <= 1 {
		if errors.Is(ctx.Err(), context.Canceled) {
			return ctx.Err() // whoever asked for the box went away, and nothing failed
		}
		return errors.New("bubblewrap did not start the box")
	}
	fd, err := unix.PidfdOpen(said.Child, 0)
	if err != nil {
		return fmt.Errorf("take hold of the box: %w", err)
	}
	b.mu.Lock()
	b.pid, b.pidfd = said.Child, fd
	b.mu.Unlock()
	if err := os.WriteFile(filepath.Join(b.run, guestFile), []byte(process.ID(said.Child)), 0o600); err != nil {
		return fmt.Errorf("note the box's first process: %w", err)
	}
	return nil
}

// explain ends a box that did not start, and returns the error that says why.
func (b *box) explain(err error) error {
	b.killGuest()
	<-b.done
	return b.unstarted(err, strings.TrimSpace(b.tail.String()))
}

// unstarted returns the error for a box that did not start, with a hint for the caller, and
// writes the details to the program's log: what bubblewrap printed names paths of the host,
// which nobody who asks for a box may learn. An error with a cause of its own, such as a
// full disk or a caller who went away, keeps its code.
func (b *box) unstarted(err error, said string) error {
	switch fault.CodeOf(err) {
	case fault.Internal, fault.Unavailable, fault.Denied:
	default:
		return err
	}
	b.computer.driver.opts.Logger.Error("a box did not start", "box", b.spec.ID, "error", err, "said", said)
	hint := fault.HintOf(err) // about too few descriptors
	if hint == "" {
		hint = notStarted
	}
	why := "a box did not start"
	var ended *sandbox.EndedError
	if errors.As(b.Err(), &ended) && ended.Reason == sandbox.Memory {
		why = "a box used up its memory as it started"
	}
	return fault.New("", fault.Unavailable, hint, errors.New(why))
}

// notStarted is the hint for a box that does not start.
const notStarted = "Try again. If it stays so, choir doctor says whether boxes start on this machine, and the program's log what this one said."

// abandon undoes a start that failed.
func (b *box) abandon() error {
	if b.cmd != nil {
		b.killGuest()
		<-b.done
		b.owned.Wait()
		return nil
	}
	close(b.done)
	return b.clean()
}

// also joins a second error to the first without hiding the first one's code.
func also(err, more error) error {
	if more == nil {
		return err
	}
	return fmt.Errorf("%w (and then: %v)", err, more)
}

func (b *box) clean() error {
	var errs []error
	for i := len(b.cleanup) - 1; i >= 0; i-- {
		errs = append(errs, b.cleanup[i]())
	}
	return errors.Join(errs...)
}

// reap waits for bubblewrap, which ends only after the last process of the
// box's process namespace, and then removes what the driver made.
func (b *box) reap(said *os.File) {
	var hearing sync.WaitGroup
	hearing.Go(func() { _, _ = io.Copy(&b.tail, said) })
	process.Await(b.cmd.Process)
	werr := b.cmd.Wait()
	b.sweep()
	// What is left of the box may hold the pipe open, but is not waited for longer than
	// this.
	_ = said.SetReadDeadline(time.Now().Add(2 * time.Second))
	hearing.Wait()
	_ = said.Close()
	oom := b.group.OOMKills()
	b.mu.Lock()
	session := b.session
	if b.ending == nil {
		b.ending = &sandbox.EndedError{Box: b.spec.ID, Reason: sandbox.Crashed, Detail: strings.TrimSpace(b.tail.String())}
		if oom > 0 {
			b.ending.Reason, b.ending.Detail = sandbox.Memory, fmt.Sprintf("it used its %d MiB of memory", b.limits.MemoryBytes>>20)
		} else if b.ending.Detail == "" && werr != nil {
			b.ending.Detail = werr.Error()
		}
	}
	b.mu.Unlock()
	if session != nil {
		_ = session.Close()
	}
	err := b.clean()
	b.mu.Lock()
	b.err, b.unclean = b.ending, err
	if b.pidfd >= 0 {
		_ = unix.Close(b.pidfd)
		b.pidfd = -1
	}
	b.mu.Unlock()
	b.computer.forget(b)
	close(b.done)
}

// watch starts the goroutines that may end the box.
func (b *box) watch() {
	if b.limits.WallTime > 0 && !defence.Off(defence.BoxWallTime) {
		timer := awake.AfterFunc(b.limits.WallTime-time.Since(b.begin), func() {
			b.end(sandbox.TimedOut, fmt.Sprintf("it ran for %v", b.limits.WallTime))
		})
		b.owned.Go(func() { <-b.done; timer.Stop() })
	}
	b.owned.Go(func() {
		select {
		case <-b.done:
			_ = b.session.Close() // the guest may have ended before it had a session
		case <-b.session.Done():
			if err := b.session.Err(); err != nil {
				b.end(sandbox.Tampered, err.Error())
				return
			}
			// The guest has ended, or is about to; it gets a moment so that its end is the
			// recorded reason.
			select {
			case <-b.done:
			case <-time.After(time.Second):
				b.end(sandbox.Crashed, "its guest hung up")
			}
		}
	})
	if b.disk != nil {
		b.disk.start()
	}
}

// end records the reason, unless there is one already, and kills the box without waiting.
func (b *box) end(reason sandbox.Reason, detail string) {
	b.mu.Lock()
	if b.ending == nil {
		b.ending = &sandbox.EndedError{Box: b.spec.ID, Reason: reason, Detail: detail}
	}
	b.mu.Unlock()
	b.killGuest()
}

// killGuest kills the guest; since that is process 1 of its namespace, the kernel kills all
// others with it.
func (b *box) killGuest() {
	b.mu.Lock()
	defer b.mu.Unlock()
	select {
	case <-b.done:
		return
	default:
	}
	if b.group != nil {
		_ = b.group.Kill() // if this fails, the end of the namespace kills them
	}
	if b.pidfd >= 0 {
		_ = unix.PidfdSendSignal(b.pidfd, unix.SIGKILL, nil, 0)
		return
	}
	if b.cmd != nil {
		_ = b.cmd.Process.Kill()
	}
}

// ID implements sandbox.Box.
func (b *box) ID() string { return b.spec.ID }

// Kind implements sandbox.Box.
func (b *box) Kind() contract.BoxKind { return b.spec.Kind }

// Tether implements sandbox.Box.
func (b *box) Tether() *tether.Session { return b.session }

// PID implements sandbox.Box.
func (b *box) PID() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.pid
}

// Signal implements sandbox.Box.
func (b *box) Signal(ctx context.Context, sig syscall.Signal) error {
	return guest.NewClient(b.session.Transport()).Signal(ctx, sig)
}

// Usage implements sandbox.Box.
func (b *box) Usage(ctx context.Context) (sandbox.Usage, error) {
	select {
	case <-b.done:
		return sandbox.Usage{}, fault.New("sandbox/local.Usage", fault.NotFound, "", b.Err())
	default:
	}
	u := sandbox.Usage{Wall: time.Since(b.begin)}
	b.group.Usage(&u)
	if b.disk != nil {
		u.DiskBytes, u.DiskInodes = b.disk.last()
	}
	return u, ctx.Err()
}

// Kill implements sandbox.Box.
func (b *box) Kill() error {
	b.end(sandbox.Killed, "")
	select {
	case <-b.done:
	case <-time.After(10 * time.Second):
		// A process that waits for a device in the kernel can't be killed before the wait
		// ends, and what a box held may take the kernel long to free.
		b.mu.Lock()
		defer b.mu.Unlock()
		return fault.New("sandbox/local.Kill", fault.Timeout, "Look for a stuck disk or network file system.", fmt.Errorf("still not gone after 10 s: %w", b.ending))
	}
	b.owned.Wait()
	b.mu.Lock()
	defer b.mu.Unlock()
	return fault.Wrap("sandbox/local.Kill", b.unclean)
}

// Done implements sandbox.Box.
func (b *box) Done() <-chan struct{} { return b.done }

// Err implements sandbox.Box.
func (b *box) Err() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.err
}
