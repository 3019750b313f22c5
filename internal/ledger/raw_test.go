package ledger_test

import (
	"math/rand/v2"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// startServer runs a server with the bus's stream but without the bus, for what the bus
// does not allow, such as connections that break and a store that does not sync.
func startServer(dir string, syncAlways bool) (*server.Server, error) {
	srv, err := server.NewServer(&server.Options{
		DontListen: true, NoSigs: true, NoLog: true, JetStream: true, StoreDir: dir,
		SyncAlways: syncAlways, SyncInterval: time.Hour, JetStreamMaxStore: 1 << 40, JetStreamMaxMemory: 1 << 20,
	})
	if err != nil {
		return nil, err
	}
	srv.Start()
	if !srv.ReadyForConnections(30 * time.Second) {
		srv.Shutdown()
		return nil, nats.ErrTimeout
	}
	return srv, nil
}

// flaky makes in-process connections and can cut them.
type flaky struct {
	srv *server.Server

	mu    sync.Mutex
	conns []net.Conn
}

func (f *flaky) InProcessConn() (net.Conn, error) {
	c, err := f.srv.InProcessConn()
	if err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.conns = append(f.conns, c)
	return c, nil
}

func (f *flaky) cut() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, c := range f.conns {
		_ = c.Close()
	}
	f.conns = nil
}

// openFlaky returns JetStream over a connection that cut breaks.
func openFlaky(t testing.TB) (jetstream.JetStream, *flaky) {
	t.Helper()
	srv, err := startServer(t.TempDir(), false)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { srv.Shutdown(); srv.WaitForShutdown() })
	f := &flaky{srv: srv}
	nc, err := nats.Connect("", nats.InProcessServer(f), nats.MaxReconnects(-1), nats.ReconnectWait(time.Millisecond), nats.ReconnectJitter(0, 0),
		nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	return js, f
}

func pick[T any](list []T) T { return list[rand.IntN(len(list))] }
