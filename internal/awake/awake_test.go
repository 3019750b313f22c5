package awake_test

import (
	"bufio"
	"context"
	"errors"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"choir.dev/choiros/internal/awake"
)

// machine is a machine's clocks, which the test sets.
type machine struct {
	mu         sync.Mutex
	boot, mono time.Duration
}

func (m *machine) pass(boot, mono time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.boot, m.mono = m.boot+boot, m.mono+mono
}

func (m *machine) clock() *awake.Clock {
	read := func(d *time.Duration) func() time.Duration {
		return func() time.Duration {
			m.mu.Lock()
			defer m.mu.Unlock()
			return *d
		}
	}
	return awake.New(read(&m.boot), read(&m.mono))
}

func TestATimeWithoutRunningDoesNotCount(t *testing.T) {
	m := &machine{}
	c := m.clock()
	var gaps []awake.Gap
	stop := c.Notify(func(g awake.Gap) { gaps = append(gaps, g) })
	defer stop()
	began := c.Now()
	m.pass(time.Second, time.Second)
	if got := c.Now() - began; got != time.Second || len(gaps) != 0 {
		t.Errorf("a second of running: %v, %v", got, gaps)
	}
	m.pass(time.Hour, time.Hour) // stopped: the machine went on
	m.pass(0, 0)
	if got := c.Now() - began; got > 2*time.Second {
		t.Errorf("an hour of standing still counted: %v", got)
	}
	m.pass(time.Hour, time.Second) // suspended: only CLOCK_BOOTTIME went on
	if got := c.Now() - began; got > 3*time.Second {
		t.Errorf("an hour of suspension counted: %v", got)
	}
	if len(gaps) != 2 || gaps[0].Why != awake.Stopped || gaps[1].Why != awake.Suspended || gaps[0].For < 59*time.Minute || gaps[1].For < 59*time.Minute {
		t.Errorf("told of %v", gaps)
	}
}

func TestNobodyJudgesATimeInWhichTheClockWasNotHeld(t *testing.T) {
	m := &machine{}
	c := m.clock()
	began := c.Now()
	m.pass(time.Hour, time.Hour)
	if got := c.Now() - began; got != time.Hour {
		t.Errorf("%v", got)
	}
	defer c.Hold()()
	m.pass(time.Second, time.Second)
	if got := c.Now() - began; got != time.Hour+time.Second {
		t.Errorf("%v", got)
	}
}

func TestADeadlineSaysWhatItIs(t *testing.T) {
	why := errors.New("its time is over")
	ctx, cancel := awake.WithTimeoutCause(t.Context(), 10*time.Millisecond, why)
	defer cancel()
	child, stop := context.WithCancel(ctx)
	defer stop()
	<-child.Done()
	<-ctx.Done()
	for _, c := range []context.Context{ctx, child} {
		if !errors.Is(c.Err(), context.DeadlineExceeded) || context.Cause(c) != why {
			t.Errorf("%v, %v", c.Err(), context.Cause(c))
		}
	}
	ctx, cancel = awake.WithTimeout(t.Context(), time.Hour)
	cancel()
	<-ctx.Done()
	if ctx.Err() != context.Canceled || context.Cause(ctx) != context.Canceled {
		t.Errorf("%v, %v", ctx.Err(), context.Cause(ctx))
	}
	mine := errors.New("the caller's own end")
	parent, end := context.WithCancelCause(t.Context())
	ctx, cancel = awake.WithTimeout(parent, time.Hour)
	defer cancel()
	end(mine)
	<-ctx.Done()
	if ctx.Err() != context.Canceled || context.Cause(ctx) != mine {
		t.Errorf("%v, %v", ctx.Err(), context.Cause(ctx))
	}
}

func TestATimerCanBeStoppedAndSetAnew(t *testing.T) {
	fired := make(chan struct{}, 8)
	timer := awake.AfterFunc(time.Hour, func() { fired <- struct{}{} })
	if !timer.Stop() || timer.Stop() {
		t.Error("a timer that was stopped says that it was not, or twice")
	}
	timer.Reset(time.Millisecond)
	<-fired
	timer.Reset(time.Millisecond)
	<-fired
}

// The child starts a timer of a second and is then stopped for three. It must learn of the gap, and
// its timer must still have what was left of the second.
func TestAStoppedProcessDoesNotRunOutOfTime(t *testing.T) {
	if os.Getenv("AWAKE_CHILD") != "" {
		gap := make(chan awake.Gap, 8)
		awake.Notify(func(g awake.Gap) { gap <- g })
		over := make(chan struct{})
		awake.AfterFunc(1500*time.Millisecond, func() { close(over) })
		os.Stdout.WriteString("ready\n")
		select {
		case <-over:
			os.Stdout.WriteString("over\n")
		case g := <-gap:
			if g.For < 2*time.Second || g.Why != awake.Stopped {
				os.Stdout.WriteString("odd\n")
			}
			select {
			case <-over: // after what was left of the second
				os.Stdout.WriteString("early\n")
			case <-time.After(100 * time.Millisecond):
				os.Stdout.WriteString("told\n")
			}
			<-over
		}
		os.Exit(0)
	}
	cmd := exec.Command(os.Args[0], "-test.run=^TestAStoppedProcessDoesNotRunOutOfTime$")
	cmd.Env = append(os.Environ(), "AWAKE_CHILD=1")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewReader(out)
	if line, err := lines.ReadString('\n'); err != nil || line != "ready\n" {
		t.Fatalf("%q, %v", line, err)
	}
	if err := cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	time.Sleep(3500 * time.Millisecond) // the process really has to be stopped
	if err := cmd.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	line, err := lines.ReadString('\n')
	if err != nil || strings.TrimSpace(line) != "told" {
		t.Errorf("it said %q, %v", line, err)
	}
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
}
