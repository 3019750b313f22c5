package awake

import (
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// step is how often a clock that is held reads the time. If a reading comes later than
	// slack behind its turn, the process counts as not having run in between. How late
	// readings are on a busy machine was not measured: a late one counts as a gap too,
	// which makes timeouts longer and ends nothing.
	step  = 500 * time.Millisecond
	slack = 1500 * time.Millisecond
)

// Cause says what kept a process from running.
type Cause string

// What kept a process from running.
const (
	Stopped   Cause = "stopped"   // only the process, or its box, was stopped
	Suspended Cause = "suspended" // the whole machine was suspended
)

// Gap is a time in which the process did not run.
type Gap struct {
	For time.Duration
	Why Cause
}

// Clock measures the time in which a process ran. It reads the time regularly only while
// somebody holds it: whether the process ran between two calls of Now is known only if the
// clock was held.
type Clock struct {
	boot, mono func() time.Duration // since the machine's start: with and without the time it was suspended

	mu         sync.Mutex
	holders    int
	timer      *time.Timer
	last, then time.Duration // boot and mono at the newest reading
	still      time.Duration // the sum of all gaps
	tell       map[int]func(Gap)
	nextTell   int
}

// process is the clock of this process.
var process = New(clockOf(unix.CLOCK_BOOTTIME), clockOf(unix.CLOCK_MONOTONIC))

// New returns a clock over two sources: the time since some start with, and without, the
// time in which the machine was suspended.
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

// Hold keeps the process's clock reading the time until the returned function is called.
func Hold() (release func()) { return process.Hold() }

// Now calls Now of the process's clock.
func Now() time.Duration { return process.Now() }

// Notify calls Notify of the process's clock.
func Notify(f func(Gap)) (stop func()) { return process.Notify(f) }

// Hold keeps the clock reading the time until the returned function is called.
func (c *Clock) Hold() (release func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.holders++
	if c.holders == 1 {
		c.last, c.then = c.boot(), c.mono() // nothing is known about the time before
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

// Now returns the time since some moment, without the gaps. Only differences have a
// meaning, and only over times in which the clock was held.
func (c *Clock) Now() time.Duration { return c.look() }

// Notify makes the clock call f with each gap, soon after its end, until the returned
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

// look reads the time and detects a gap since the previous reading. Every caller does this,
// not only the tick, because a timer that fires when the process continues may come before
// the tick.
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
