package guest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"runtime"
	"runtime/debug"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/crash"
	"choir.dev/choiros/internal/defence"
	"choir.dev/choiros/internal/guest/early"
	"choir.dev/choiros/internal/tether"
)

// Services are what a binary adds to its guests. New is called once, before the
// host can ask for anything; the handler it returns serves every path that the
// guest itself doesn't (/health, /exec, /pty, /signal, /clear, /forward/, /files/).
// A nil New adds nothing.
type Services struct {
	New func(ctx context.Context, in ServiceEnv) (http.Handler, error)
}

// ServiceEnv is what a service may use.
type ServiceEnv struct {
	Kind   contract.BoxKind
	Box    string
	Root   string
	Runner Runner
	// Host sends requests to the host over the tether: http://box/path.
	Host *http.Client
}

// Exit codes of a guest's process.
const (
	exitEnded  = 0   // the tether ended
	exitFailed = 125 // it could not start
)

// Main is the whole run of a guest. It must be called from the main goroutine of a binary
// that imports guest/early, as process 1 of a box; it returns the exit code when the tether
// has ended and everything else in the box is dead.
func Main(ctx context.Context, kind string, services Services) int {
	if err := serve(ctx, kind, services); err != nil {
		fmt.Fprintln(os.Stderr, "choir guest:", err)
		return exitFailed
	}
	return exitEnded
}

func serve(ctx context.Context, kind string, services Services) error {
	if err := harden(); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	// This goroutine is locked to the main thread, and each time that it waits for another
	// goroutine costs a switch of threads. So it waits only twice: for the start and for
	// the end.
	begun := make(chan beginning, 1)
	go func() { begun <- begin(ctx, kind, services) }()
	b := <-begun
	defer b.close()
	if b.err != nil {
		return b.err
	}
	reap(b.session.Done(), b.signals)
	killAll()
	return nil
}

// beginning is a guest that has started, or the error.
type beginning struct {
	session *tether.Session
	signals <-chan os.Signal
	stops   []func() // stop what listens in the box
	err     error
}

func (b beginning) close() {
	for _, stop := range b.stops {
		stop()
	}
	if b.session != nil {
		_ = b.session.Close()
	}
}

// begin starts the guest, so that it answers the host.
func begin(ctx context.Context, kind string, services Services) (b beginning) {
	specFile := os.NewFile(SpecFD, "spec")
	spec, err := readSpec(specFile)
	_ = specFile.Close()
	if err != nil {
		return beginning{err: err}
	}
	if string(spec.Kind) != kind {
		return beginning{err: fmt.Errorf("started as %s, but the spec is for %s", kind, spec.Kind)}
	}
	if err := limit(spec); err != nil {
		return beginning{err: err}
	}
	if b.signals, b.err = catch(); b.err != nil { // before anything else can run in the box
		return b
	}
	token, err := tether.ParseToken(spec.Token)
	spec.Token = ""
	if err != nil {
		return beginning{err: err}
	}
	pipe := os.NewFile(TetherFD, "tether")
	conn, err := net.FileConn(pipe)
	_ = pipe.Close()
	if err != nil {
		return beginning{err: fmt.Errorf("the tether is no socket: %w", err)}
	}

	g := &server{spec: spec, runner: Runner{Root: spec.Root, Env: environment(spec)}}
	ready := make(chan struct{})
	b.session, b.err = tether.Dial(ctx, conn, tether.Options{
		Token: token, Limits: tether.Limits{BodyBytes: -1},
		// The host may send requests before the services below are made.
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			<-ready
			g.ServeHTTP(w, r)
		}),
	})
	if b.err != nil {
		return b
	}
	if services.New != nil {
		g.services, err = services.New(ctx, ServiceEnv{Kind: spec.Kind, Box: spec.Box, Root: spec.Root, Runner: g.runner, Host: b.session.Client()})
		if err != nil {
			b.err = fmt.Errorf("start the %s's services: %w", kind, err)
			return b
		}
	}
	if spec.Proxy {
		stop, err := startProxy(ctx, b.session)
		if b.err = err; err != nil {
			return b
		}
		b.stops = append(b.stops, stop)
	}
	if spec.ModelToken != "" {
		stop, err := startModel(b.session)
		if b.err = err; err != nil {
			return b
		}
		b.stops = append(b.stops, stop)
	}
	g.fresh = g.state()
	if spec.Kind != contract.BoxDirector && spec.Kind != contract.BoxAssociate {
		// It was started with one processor (seal.Procs). A loop, which does one thing after
		// the other and mostly waits, stays with that: its goroutines hand over to each other
		// without waking a thread.
		runtime.SetDefaultGOMAXPROCS()
	}
	crash.At("ready")
	close(ready)
	return b
}

// harden does what early.init could not do, and checks that early.init ran.
func harden() error {
	if early.Err != nil {
		return fmt.Errorf("make this process undumpable: %w", early.Err)
	}
	if dumpable, err := unix.PrctlRetInt(unix.PR_GET_DUMPABLE, 0, 0, 0, 0); (err != nil || dumpable != 0) && !defence.Off(defence.GuestUndumpable) {
		return errors.New("this process can be read by others in the box (guest/early was not linked first)")
	}
	if os.Getpid() != 1 {
		return errors.New("a guest is process 1 of a box; it is started by a driver, not by hand")
	}
	if runtime.LockOSThread(); unix.Gettid() != os.Getpid() {
		return errors.New("not on the main thread")
	}
	// Descriptors that the driver left open are for this process alone.
	if !defence.Off(defence.GuestDescriptors) {
		if err := unix.CloseRange(3, 1<<31-1, unix.CLOSE_RANGE_CLOEXEC); err != nil {
			return fmt.Errorf("keep descriptors from children: %w", err)
		}
	}
	debug.SetMemoryLimit(128 << 20)
	return nil
}

const (
	maxPending = 4096      // queued signals, of which each timer of a process holds one
	maxQueued  = 256 << 10 // of POSIX message queues, in bytes
)

// limit sets the resource limits that every process of the box inherits.
func limit(spec Spec) error {
	set := func(what string, resource int, n uint64) error {
		var was unix.Rlimit
		if err := unix.Getrlimit(resource, &was); err != nil {
			return fmt.Errorf("limit %s: %w", what, err)
		}
		n = min(n, was.Max)
		if err := unix.Setrlimit(resource, &unix.Rlimit{Cur: n, Max: n}); err != nil {
			return fmt.Errorf("limit %s: %w", what, err)
		}
		return nil
	}
	if err := set("core dumps", unix.RLIMIT_CORE, 0); err != nil {
		return err
	}
	// It calls package syscall, so that Go doesn't restore an older soft limit in children.
	var files syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &files); err != nil {
		return fmt.Errorf("limit open files: %w", err)
	}
	files.Max = min(files.Max, uint64(spec.OpenFiles))
	files.Cur = files.Max
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &files); err != nil {
		return fmt.Errorf("limit open files: %w", err)
	}
	var errs []error
	if spec.FileBytes > 0 && !defence.Off(defence.BoxFileSize) {
		errs = append(errs, set("file size", unix.RLIMIT_FSIZE, uint64(spec.FileBytes)))
	}
	// The kernel counts these per user, in this user namespace and in those above it. So
	// they limit the box, and what the box uses also counts for the host's user.
	if spec.Processes > 0 && !defence.Off(defence.BoxProcesses) {
		errs = append(errs, set("processes", unix.RLIMIT_NPROC, uint64(spec.Processes)))
	}
	if !defence.Off(defence.BoxPending) {
		errs = append(errs, set("pending signals and timers", unix.RLIMIT_SIGPENDING, maxPending))
	}
	if !defence.Off(defence.BoxQueues) {
		errs = append(errs, set("message queues", unix.RLIMIT_MSGQUEUE, maxQueued))
	}
	return errors.Join(errs...)
}

// reap waits for orphans that have ended, until done is closed; signals reports the ends of
// children. It runs on the main thread, whose children are the orphans, and waits for the
// children of this thread only: those of other threads belong to the code that started
// them.
func reap(done <-chan struct{}, signals <-chan os.Signal) {
	tick := time.NewTicker(5 * time.Second)
	defer tick.Stop()
	for {
		for {
			var status syscall.WaitStatus
			pid, err := syscall.Wait4(-1, &status, syscall.WNOHANG|unix.WNOTHREAD|unix.WALL, nil)
			if pid <= 0 && !errors.Is(err, syscall.EINTR) {
				break
			}
		}
	wait:
		for {
			select {
			case <-done:
				return
			case s := <-signals:
				if s == syscall.SIGCHLD {
					break wait
				}
			case <-tick.C: // in case a SIGCHLD was dropped
				break wait
			}
		}
	}
}

// killAll kills everything in the box except this process.
func killAll() {
	deadline := time.Now().Add(5 * time.Second)
	for time.Now().Before(deadline) {
		_ = syscall.Kill(-1, syscall.SIGKILL)
		var status syscall.WaitStatus
		if _, err := syscall.Wait4(-1, &status, unix.WALL, nil); errors.Is(err, syscall.ECHILD) {
			return
		}
	}
}
