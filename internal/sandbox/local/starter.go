package local

import (
	"errors"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"time"

	"choir.dev/choiros/internal/process"
	"choir.dev/choiros/internal/sandbox/local/cgroup"
)

// starter starts processes from one thread that lives as long as the starter does: a
// process that is set to die with its parent dies with the thread that started it, and Go
// ends threads at any time. The thread also enters the version 1 cgroups of the boxes that
// it starts.
type starter struct {
	work chan func()
	done chan struct{}
}

func newStarter() *starter {
	s := &starter{work: make(chan func()), done: make(chan struct{})}
	go func() {
		defer close(s.done)
		runtime.LockOSThread() // never unlocked: the thread ends with this goroutine
		for f := range s.work {
			f()
		}
	}()
	return s
}

func (s *starter) close() {
	close(s.work)
	<-s.done
}

// start starts cmd inside g, with a slack of its own for its threads and for what it starts.
func (s *starter) start(cmd *exec.Cmd, g *cgroup.Group, slack time.Duration) error {
	result := make(chan error, 1)
	s.work <- func() {
		// Where the kernel knows of none, what is started has what this process has.
		_ = process.SetSlack(slack)
		result <- startIn(cmd, g)
	}
	return <-result
}

func startIn(cmd *exec.Cmd, g *cgroup.Group) error {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
	if len(g.Dirs) == 0 {
		return cmd.Start()
	}
	if g.In.V2 {
		for _, dir := range g.Dirs {
			f, err := os.Open(dir)
			if err != nil {
				return err
			}
			defer f.Close()
			cmd.SysProcAttr.UseCgroupFD, cmd.SysProcAttr.CgroupFD = true, int(f.Fd())
			break
		}
		return cmd.Start()
	}
	if err := g.Enter(); err != nil {
		return errors.Join(err, g.Leave())
	}
	err := cmd.Start()
	if lerr := g.Leave(); lerr != nil {
		if err == nil {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		}
		return errors.Join(err, lerr)
	}
	return err
}
