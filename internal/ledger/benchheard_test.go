package ledger_test

import (
	"context"
	"fmt"
	"net"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nkeys"
	"golang.org/x/sys/unix"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/bus"
	"choir.dev/choiros/internal/ledger"
)

// BenchmarkAppendHeard reports how much processor time of the whole process passes from a
// call to its answer while many connections are subscribed, and until all have received the
// event. It uses one processor, so the order of the work decides.
func BenchmarkAppendHeard(b *testing.B) {
	for _, listeners := range []int{0, 1, 1000} {
		b.Run(fmt.Sprint("listeners=", listeners), func(b *testing.B) {
			defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
			bu := openBus(b, b.TempDir())
			l := openLog(b, bu, ledger.Options{CID: contract.NewCID()})
			var left atomic.Int64
			heard := make(chan struct{}, 1)
			for i := range listeners {
				nc := desktop(b, bu, l.CID(), fmt.Sprint("session-", i/20))
				b.Cleanup(nc.Close)
				if _, err := nc.Subscribe(contract.SubjectLive(l.CID()), func(*nats.Msg) {
					if left.Add(-1) == 0 {
						heard <- struct{}{}
					}
				}); err != nil {
					b.Fatal(err)
				}
				if err := nc.Flush(); err != nil {
					b.Fatal(err)
				}
			}
			var answered, all time.Duration
			for range b.N {
				left.Store(int64(listeners))
				start := processorTime(b)
				appendOne(b, l, 1)
				answered += processorTime(b) - start
				if listeners > 0 {
					<-heard
				}
				all += processorTime(b) - start
			}
			b.ReportMetric(float64(answered.Microseconds())/float64(b.N), "cpu-µs/answered")
			b.ReportMetric(float64(all.Microseconds())/float64(b.N), "cpu-µs/heard")
		})
	}
}

// served connects to the bus in the way a browser's connection does.
type served struct{ bus *bus.Bus }

func (s served) Dial(_, _ string) (net.Conn, error) {
	near, far := net.Pipe()
	go func() { _ = s.bus.Serve(context.Background(), far) }() // ends with the connection
	return near, nil
}

func desktop(b *testing.B, bu *bus.Bus, cid contract.CID, session string) *nats.Conn {
	c, err := bu.Mint(cid, session, time.Hour)
	if err != nil {
		b.Fatal(err)
	}
	key, err := nkeys.FromSeed([]byte(c.Seed))
	if err != nil {
		b.Fatal(err)
	}
	nc, err := nats.Connect("nats://127.0.0.1", nats.SetCustomDialer(served{bu}), nats.CustomInboxPrefix(c.Inbox),
		nats.UserJWT(func() (string, error) { return c.JWT, nil }, key.Sign))
	if err != nil {
		b.Fatal(err)
	}
	return nc
}

func processorTime(b *testing.B) time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_PROCESS_CPUTIME_ID, &ts); err != nil {
		b.Fatal(err)
	}
	return time.Duration(ts.Nano())
}
