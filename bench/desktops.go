package bench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"golang.org/x/sync/errgroup"

	"choir.dev/choiros/bench/procfs"
	"choir.dev/choiros/bench/report"
)

// desktops connects many desktops as browsers do, and measures how long an event takes to
// reach all of them, and what they cost the appender. The control plane has all processors
// but one, which the desktops use.
func desktops(ctx context.Context, e *env) (_ []report.Result, err error) {
	cores := runtime.NumCPU()
	if cores < 2 {
		return nil, missingError{"the desktops need a processor of their own"}
	}
	theirs := make([]int, 0, cores)
	for c := 1; c < cores; c++ {
		theirs = append(theirs, c)
	}
	w, err := e.openWorld(ctx, theirs...)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, w.Close()) }()
	free, err := confine(0)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, free()) }()
	d, err := openDesk(ctx, w.plane)
	if err != nil {
		return nil, err
	}
	c := &listeningDesktops{world: w, desk: d}
	defer c.close()
	if err := c.join(ctx, 1); err != nil {
		return nil, err
	}
	tries := e.size(40, 2)
	one, _, err := c.rename(ctx, tries)
	if err != nil {
		return nil, err
	}
	many := e.size(1000, 5)
	if err := c.join(ctx, many-1); err != nil {
		return nil, fmt.Errorf("connect %d desktops: %w", many, err)
	}
	if err := e.quiet(ctx, w.PID); err != nil {
		return nil, err
	}
	appended, delivered, err := c.rename(ctx, tries)
	if err != nil {
		return nil, err
	}
	kb, err := procfs.Resident(w.PID)
	if err != nil {
		return nil, err
	}
	return []report.Result{
		{ID: "desktops", What: fmt.Sprintf("%d desktops: an event's way to each, p99", many), Ours: millis(delivered.p(0.99)), Target: report.AtMost(report.OfOurs, 100, "ms"),
			Note: fmt.Sprintf("From the request's first byte. The median of all is %s. The control plane has %d MB with them; the desktops are connections over WebSocket in this program, on one processor of their own.", delivered.ms(), kb/1e6)},
		appended.tell(report.Result{ID: "desktops-append", What: fmt.Sprintf("append with %d desktops connected, against one", many), Raw: one.ms(), RawWhat: "the same with one desktop",
			Ratio: over(appended.p50(), one.p50()), Target: report.AtMost(report.OfRatio, 2, "×"), Note: "A rename through the API."}),
	}, nil
}

// confine keeps all threads of this program on one processor until free is called.
func confine(cpu int) (free func() error, err error) {
	set := func(cpus []int) error {
		tasks, err := os.ReadDir("/proc/self/task")
		for _, t := range tasks {
			if id, bad := strconv.Atoi(t.Name()); bad == nil {
				err = errors.Join(err, pin(id, cpus))
			}
		}
		return err
	}
	all := make([]int, runtime.NumCPU())
	for i := range all {
		all[i] = i
	}
	return func() error { return set(all) }, set([]int{cpu})
}

// listeningDesktops are desktops that wait for events.
type listeningDesktops struct {
	world *world
	desk  *desk
	conns []*nats.Conn
	said  int

	mu   sync.Mutex
	want []byte // a part of the data of the awaited event
	at   time.Time
	got  times
	left int
	done chan struct{}
}

// ofSession is how many windows share one browser session; a session is allowed only a few more.
const ofSession = 20

// join connects n more, a few at a time.
func (c *listeningDesktops) join(ctx context.Context, n int) error {
	var g errgroup.Group
	g.SetLimit(8)
	conns := make([]*nats.Conn, n)
	d := c.desk
	for i := range n {
		if i%ofSession == ofSession-1 {
			again, err := c.desk.enter(ctx)
			if err != nil {
				return errors.Join(err, g.Wait())
			}
			d = again
		}
		mine := d
		g.Go(func() (err error) {
			if conns[i], err = mine.live(ctx); err != nil {
				return err
			}
			if _, err = conns[i].Subscribe("live."+string(c.desk.cid)+".>", c.hear); err != nil {
				return err
			}
			return conns[i].FlushWithContext(ctx)
		})
	}
	err := g.Wait()
	for _, conn := range conns {
		if conn != nil {
			c.conns = append(c.conns, conn)
		}
	}
	return err
}

func (c *listeningDesktops) hear(m *nats.Msg) {
	at := time.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.want == nil || !bytes.Contains(m.Data, c.want) {
		return
	}
	c.got = append(c.got, at.Sub(c.at))
	if c.left--; c.left == 0 {
		close(c.done)
	}
}

// rename renames the computer and waits each time until every desktop has the event.
func (c *listeningDesktops) rename(ctx context.Context, tries int) (appended sample, delivered times, err error) {
	for i := range tries + 1 {
		c.said++
		name := fmt.Sprint("Desk ", c.said)
		done := make(chan struct{})
		c.mu.Lock()
		c.want, c.at, c.left, c.done = []byte(`"`+name+`"`), time.Now(), len(c.conns), done
		if i == 1 && !c.world.env.Tiny { // the first warms caches and is dropped
			c.got, appended = nil, sample{}
		}
		c.mu.Unlock()
		if err := appended.try(c.world.meter, func() error { _, err := c.world.api.Rename(ctx, name); return err }); err != nil {
			return appended, nil, err
		}
		select {
		case <-done:
		case <-time.After(20 * time.Second):
			return appended, nil, fmt.Errorf("not every one of %d desktops had the event within 20 s", len(c.conns))
		case <-ctx.Done():
			return appended, nil, ctx.Err()
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	delivered, c.got, c.want = c.got, nil, nil
	return appended, delivered, nil
}

func (c *listeningDesktops) close() {
	for _, conn := range c.conns {
		conn.Close()
	}
}
