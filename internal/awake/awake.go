package awake

import (
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// step is how often a clock that somebody needs looks at the time; one look
	// that comes later than slack behind its turn means that the process did not
	// run in between. How late a busy machine is was not measured: one that is
	// later is told of as a gap, which lengthens patience and ends nothing.
	step  = 500 * time.Millisecond
	slack = 1500 * time.Millisecond
)

// Why says what kept a process from running.
type Why string

// What kept a process from running.
const (
	Stopped   Why = "stopped"   // it alone, or its box
	Suspended Why = "suspended" // the whole machine
)

// Gap is a time in which the process did not run.
type Gap struct {
	For time.Duration
	Why Why
}

// Clock tells the time in which a process ran. It looks at the time only while
// somebody needs it: between two calls of Now the process is known to have run
// only when the clock was held.
type Clock struct {
	boot, mono func() time.Duration // since the machine's start: with and without the time it was suspended

	mu         sync.Mutex
	holders    int
	timer      *time.Timer
	last, then time.Duration // boot and mono at the newest look
	still      time.Duration // of all gaps
	tell       map[int]func(Gap)
	nextTell   int
}

// process is the clock of this process.
var process = New(clockOf(unix.CLOCK_BOOTTIME), clockOf(unix.CLOCK_MONOTONIC))

// New is a clock over two sources: the time since some start, with and without
// the time in which the machine was suspended.
func New(boot, mono func() time.Duration) *Clock {
	c := &Clock{boot: boot, mono: mono, tell: map[int]func(Gap){}}
	c.last, c.then = boot(), mono()
	return c
}

func clockOf(id int32) func() time.Duration {
	return func() time.Duration {
		var ts unix.Timespec
		if err := unix.ClockGettime(id, &ts); err != nil {
			panic("awake: the kernel has no such clock: " + err.Error()) // since Linux 2.6.39 it has
		}
		return time.Duration(ts.Nano())
	}
}

// Hold keeps the process's clock looking until the returned function is called.
func Hold() (release func()) { return process.Hold() }

// Now is the process's clock's Now.
func Now() time.Duration { return process.Now() }

// Notify is the process's clock's Notify.
func Notify(f func(Gap)) (stop func()) { return process.Notify(f) }

// Hold keeps the clock looking until the returned function is called.
func (c *Clock) Hold() (release func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.holders++
	if c.holders == 1 {
		c.last, c.then = c.boot(), c.mono() // nobody knows about before
		c.timer = time.AfterFunc(step, c.tick)
	}
	return sync.OnceFunc(func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.holders--; c.holders == 0 {
			c.timer.Stop()
		}
	})
}

func (c *Clock) tick() {
	c.look()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.holders > 0 {
		c.timer.Reset(step)
	}
}

// Now is the time since some moment, without the gaps. Only differences count,
// and only over times in which the clock was held.
func (c *Clock) Now() time.Duration { return c.look() }

// Notify has f called with each gap, soon after its end, until the returned
// function is called. f must not block. The clock is held meanwhile.
func (c *Clock) Notify(f func(Gap)) (stop func()) {
	release := c.Hold()
	c.mu.Lock()
	n := c.nextTell
	c.nextTell++
	c.tell[n] = f
	c.mu.Unlock()
	return sync.OnceFunc(func() {
		c.mu.Lock()
		delete(c.tell, n)
		c.mu.Unlock()
		release()
	})
}

// look takes a gap since the last look into account, whoever looks first behind
// it: a timer that fires as the process goes on must not be faster than the tick.
func (c *Clock) look() time.Duration {
	c.mu.Lock()
	boot, mono := c.boot(), c.mono()
	passed, ran := boot-c.last, mono-c.then
	c.last, c.then = boot, mono
	var gap Gap
	var tell []func(Gap)
	if c.holders > 0 && passed > step+slack {
		gap = Gap{For: passed - step, Why: Stopped}
		if passed-ran > gap.For/2 {
			gap.Why = Suspended
		}
		c.still += gap.For
		for _, f := range c.tell {
			tell = append(tell, f)
		}
	}
	now := boot - c.still
	c.mu.Unlock()
	for _, f := range tell {
		f(gap)
	}
	return now
}
