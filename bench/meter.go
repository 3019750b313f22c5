package bench

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"choir.dev/choiros/bench/report"
)

// syncCalls are the system calls that wait for a disk.
var syncCalls = []string{"fsync", "fdatasync", "syncfs", "sync"}

// meter counts the processor time and the syncs of a process and all its descendants, including
// those that have ended. It uses the kernel's own counters, which children inherit, and unlike
// strace it does not slow down what is measured.
type meter struct {
	clock []int
	syncs []int
	// why says why this machine can't count.
	why error
}

// reading is the state of a meter at one moment.
type reading struct {
	processor time.Duration
	syncs     int64
}

// newMeter counts the calling thread and everything that is started from it from now on. The caller
// has locked the goroutine to the thread, and then starts the process.
func newMeter() *meter {
	m := &meter{}
	m.add(0)
	return m
}

// meterSelf counts this process: all its threads, and every thread that these start.
func meterSelf() *meter {
	m := &meter{}
	// A thread that is started during this loop is either found by it or the child of one
	// that is counted already.
	tasks, err := os.ReadDir("/proc/self/task")
	m.why = err
	for _, t := range tasks {
		if id, err := strconv.Atoi(t.Name()); err == nil && m.why == nil {
			m.add(id)
		}
	}
	return m
}

// add counts one thread and its children.
func (m *meter) add(thread int) {
	open := func(kind uint32, config uint64) int {
		if m.why != nil {
			return -1
		}
		attr := unix.PerfEventAttr{Type: kind, Config: config, Bits: unix.PerfBitInherit}
		attr.Size = uint32(unsafe.Sizeof(attr))
		fd, err := unix.PerfEventOpen(&attr, thread, -1, -1, unix.PERF_FLAG_FD_CLOEXEC)
		if err != nil {
			m.why = fmt.Errorf("the kernel does not let this user count (perf_event_open): %w", err)
			return -1
		}
		return fd
	}
	m.clock = append(m.clock, open(unix.PERF_TYPE_SOFTWARE, unix.PERF_COUNT_SW_TASK_CLOCK))
	for _, call := range syncCalls {
		id, err := tracepoint("sys_enter_" + call)
		m.why = errors.Join(m.why, err)
		m.syncs = append(m.syncs, open(unix.PERF_TYPE_TRACEPOINT, id))
	}
}

// tracepoint is the kernel's id of a tracepoint.
func tracepoint(name string) (uint64, error) {
	var err error
	for _, root := range []string{"/sys/kernel/tracing", "/sys/kernel/debug/tracing"} {
		var b []byte
		if b, err = os.ReadFile(filepath.Join(root, "events/syscalls", name, "id")); err == nil {
			return strconv.ParseUint(strings.TrimSpace(string(b)), 10, 64)
		}
	}
	if errors.Is(err, fs.ErrNotExist) {
		err = fmt.Errorf("tracefs is not mounted, or the kernel does not trace system calls: %w", err)
	}
	return 0, err
}

// read returns the meter's state; ok is false where nothing can be counted.
func (m *meter) read() (r reading, ok bool) {
	if m == nil || m.why != nil {
		return reading{}, false
	}
	sum := func(fds []int) (total int64) {
		for _, fd := range fds {
			var b [8]byte
			if n, err := unix.Read(fd, b[:]); err != nil || n != len(b) {
				m.why = errors.Join(fmt.Errorf("read a counter: %d bytes", n), err)
				return 0
			}
			total += int64(binary.NativeEndian.Uint64(b[:]))
		}
		return total
	}
	r = reading{time.Duration(sum(m.clock)), sum(m.syncs)}
	return r, m.why == nil
}

func (m *meter) Close() error {
	var errs []error
	for _, fd := range append(m.clock, m.syncs...) {
		if fd >= 0 {
			errs = append(errs, unix.Close(fd))
		}
	}
	return errors.Join(errs...)
}

// metered starts a process from a thread of its own, so that only the process is counted,
// and keeps the thread until done is closed: the counters of a thread that has ended still
// count its children, but nobody could read them.
func metered(start func() error, done <-chan struct{}, cpus ...int) (*meter, error) {
	type begun struct {
		m   *meter
		err error
	}
	ready := make(chan begun)
	go func() { // ends with done; its thread is never used for anything else
		runtime.LockOSThread()
		err := pin(0, cpus)
		m := newMeter()
		if err == nil {
			err = start()
		}
		ready <- begun{m, err}
		if err == nil {
			<-done
		}
	}()
	b := <-ready
	if b.err != nil {
		b.err = errors.Join(b.err, b.m.Close())
	}
	return b.m, b.err
}

// pin keeps a thread on some processors; with none it does nothing.
func pin(thread int, cpus []int) error {
	if len(cpus) == 0 {
		return nil
	}
	var set unix.CPUSet
	for _, c := range cpus {
		set.Set(c)
	}
	return unix.SchedSetaffinity(thread, &set)
}

// sample is how long many tries of one thing took.
type sample struct {
	times
	used []reading // of each try, where it could be counted
}

// try adds one try and what the meter counted during it.
func (s *sample) try(m *meter, f func() error) error {
	before, ok := m.read()
	err := s.timed(f)
	if after, still := m.read(); ok && still {
		s.used = append(s.used, reading{after.processor - before.processor, after.syncs - before.syncs})
	}
	return err
}

// each returns what one operation used on average when a try made n at once; nil where it can't be
// counted.
func (s sample) each(n int) (processor *time.Duration, syncs *float64) {
	if len(s.used) == 0 {
		return nil, nil
	}
	var total reading
	for _, u := range s.used {
		total.processor += u.processor
		total.syncs += u.syncs
	}
	things := len(s.used) * n
	mean, each := total.processor/time.Duration(things), float64(total.syncs)/float64(things)
	return &mean, &each
}

// tell adds a sample's median, p99 and syncs to a result.
func (s sample) tell(r report.Result) report.Result {
	if r.Ours == nil {
		r.Ours = s.ms()
	}
	if len(s.times) > 1 {
		r.P99 = millis(s.p(0.99))
	}
	_, r.Fsyncs = s.each(1)
	return r
}
