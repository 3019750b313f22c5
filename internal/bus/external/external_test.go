package external_test

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/bus"
	"choir.dev/choiros/internal/bus/bustest"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/ledger"
	"choir.dev/choiros/test/choirtest"
)

const patience = 30 * time.Second

// serve starts a NATS server on this machine.
func serve(t testing.TB, o server.Options) *server.Server {
	t.Helper()
	o.Host, o.NoSigs, o.NoLog = "127.0.0.1", true, true
	if o.Port == 0 {
		o.Port = server.RANDOM_PORT
	}
	o.SyncAlways = true
	s, err := server.NewServer(&o)
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	t.Cleanup(func() {
		s.Shutdown()
		s.WaitForShutdown()
	})
	if o.Cluster.Name != "" { // a cluster is ready only once the other servers have started
		choirtest.Eventually(t, patience, "the server listens", func() bool { return s.ClusterAddr() != nil && s.Addr() != nil })
	} else if !s.ReadyForConnections(patience) {
		t.Fatal("the server is not ready")
	}
	return s
}

func open(t testing.TB, o bus.Options) *bus.Bus {
	t.Helper()
	b, err := bus.Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestSuite(t *testing.T) {
	s := serve(t, server.Options{JetStream: true, StoreDir: t.TempDir()})
	bustest.Run(t, func(t testing.TB) *bus.Bus { return open(t, bus.Options{URL: s.ClientURL()}) })
}

// TestReplicas shows that with three servers each has a copy of a log, and that the log stays
// usable when one server is gone.
func TestReplicas(t *testing.T) {
	// Each server has to know the others' addresses before it starts.
	var ports []int
	var routes []*url.URL
	for range 3 {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		ports = append(ports, l.Addr().(*net.TCPAddr).Port)
		routes = append(routes, &url.URL{Scheme: "nats", Host: l.Addr().String()})
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	}
	var all []*server.Server
	var urls []string
	for i, port := range ports {
		s := serve(t, server.Options{ServerName: fmt.Sprint("s", i), JetStream: true, StoreDir: t.TempDir(), Routes: routes,
			Cluster: server.ClusterOpts{Name: "three", Host: "127.0.0.1", Port: port}})
		all, urls = append(all, s), append(urls, s.ClientURL())
	}
	choirtest.Eventually(t, patience, "the servers have agreed", func() bool {
		for _, s := range all {
			if s.JetStreamIsLeader() && len(s.JetStreamClusterPeers()) == 3 {
				return true
			}
		}
		return false
	})
	options := bus.Options{URL: strings.Join(urls, ","), Replicas: 3}
	bustest.Run(t, func(t testing.TB) *bus.Bus { return open(t, options) })

	b := open(t, options)
	defer b.Close()
	cid := contract.NewCID()
	say := func(text string) contract.Draft {
		return contract.Draft{ID: contract.NewID(), Actor: contract.Person(""), Type: "prompt.submitted", Data: &contract.PromptSubmitted{Text: text}}
	}
	reopened := func() *ledger.Log {
		l, err := ledger.Open(t.Context(), b.JetStream(), ledger.Options{CID: cid, Ensure: b.EnsureStream})
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	l := reopened()
	if _, err := l.Append(t.Context(), say("with three")); err != nil {
		t.Fatal(err)
	}
	// This server leads the log's group, and choir may be connected to it.
	stream, err := b.JetStream().Stream(t.Context(), contract.StreamLog(cid))
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range all {
		if s.Name() == stream.CachedInfo().Cluster.Leader {
			s.Shutdown()
			s.WaitForShutdown()
		}
	}
	next := say("with two")
	choirtest.Eventually(t, patience, "the other two go on", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		_, err := l.Append(ctx, next)
		return err == nil
	})
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	l = reopened()
	defer l.Close()
	if page, err := l.Read(t.Context(), 0, 10); err != nil || len(page) != 2 || page[1].ID != next.ID {
		t.Errorf("%v, %v", page, err)
	}
}

// TestOneServerKeepsOneReplica shows that too many replicas are refused when the log is made.
func TestOneServerKeepsOneReplica(t *testing.T) {
	s := serve(t, server.Options{JetStream: true, StoreDir: t.TempDir()})
	b := open(t, bus.Options{URL: s.ClientURL(), Replicas: 3})
	defer b.Close()
	if err := bus.EnsureStream(t.Context(), b.JetStream(), contract.NewCID(), b.Replicas()); err == nil || !strings.Contains(err.Error(), "replicas > 1 not supported") {
		t.Errorf("got %v", err)
	}
}

func TestWhatAnotherServerIsNotAskedFor(t *testing.T) {
	s := serve(t, server.Options{JetStream: true, StoreDir: t.TempDir()})
	b := open(t, bus.Options{URL: s.ClientURL()})
	defer b.Close()
	refused := func(what string, err error) {
		t.Helper()
		if !fault.Is(err, fault.Missing) || fault.HintOf(err) == "" {
			t.Errorf("%s: %v", what, err)
		}
	}
	_, err := b.Mint(contract.NewCID(), "someone", time.Hour)
	refused("credentials", err)
	near, far := net.Pipe()
	defer near.Close()
	refused("a client", b.Serve(t.Context(), far))
	refused("the store's files", b.Files())
	if err := b.Revoke("someone"); err != nil {
		t.Errorf("revoking what was never made: %v", err)
	}
	s.Shutdown()
	s.WaitForShutdown()
	choirtest.Eventually(t, patience, "it is said that the server is gone", func() bool { return fault.Is(b.Health(), fault.Unavailable) })
}

func TestOpenRefuses(t *testing.T) {
	plain := serve(t, server.Options{})
	small := serve(t, server.Options{JetStream: true, StoreDir: t.TempDir(), MaxPayload: 64 << 10})
	closed := serve(t, server.Options{JetStream: true, StoreDir: t.TempDir(), Username: "choir", Password: "right"})
	gone := serve(t, server.Options{JetStream: true, StoreDir: t.TempDir()})
	away := gone.ClientURL()
	gone.Shutdown()
	withPassword := func(s *server.Server, word string) string {
		return strings.Replace(s.ClientURL(), "nats://", "nats://choir:"+word+"@", 1)
	}
	for name, c := range map[string]struct {
		o    bus.Options
		code fault.Code
		says string
	}{
		"no JetStream":           {bus.Options{URL: plain.ClientURL()}, fault.Missing, "jetstream"},
		"messages too small":     {bus.Options{URL: small.ClientURL()}, fault.Missing, "65536"},
		"a wrong password":       {bus.Options{URL: withPassword(closed, "wrong")}, fault.Denied, "Authorization"},
		"nobody there":           {bus.Options{URL: away}, fault.Unavailable, ""},
		"in plain to elsewhere":  {bus.Options{URL: "nats://nats.example:4222"}, fault.Denied, "not be encrypted"},
		"one of them elsewhere":  {bus.Options{URL: plain.ClientURL() + ",nats://nats.example:4222"}, fault.Denied, "not be encrypted"},
		"another scheme":         {bus.Options{URL: "http://127.0.0.1:80"}, fault.Invalid, "no scheme"},
		"no server":              {bus.Options{URL: "nats://"}, fault.Invalid, "names no server"},
		"no URL":                 {bus.Options{URL: "nats://choir:secret@127.0.0.1:x"}, fault.Invalid, "can't be read"},
		"a directory too":        {bus.Options{URL: plain.ClientURL(), Dir: t.TempDir()}, fault.Invalid, "one place"},
		"neither":                {bus.Options{}, fault.Invalid, "neither"},
		"replicas without a URL": {bus.Options{Dir: filepath.Join(t.TempDir(), "nats"), Replicas: 3}, fault.Invalid, "keeps one"},
		"too many replicas":      {bus.Options{URL: plain.ClientURL(), Replicas: 9}, fault.Invalid, "1 to 5"},
	} {
		b, err := bus.Open(t.Context(), c.o)
		if err == nil {
			b.Close()
		}
		if !fault.Is(err, c.code) || fault.HintOf(err) == "" || !strings.Contains(err.Error(), c.says) || strings.Contains(fmt.Sprint(err), "secret") {
			t.Errorf("%s: %v (%s)", name, err, fault.CodeOf(err))
		}
	}
	b := open(t, bus.Options{URL: withPassword(closed, "right")})
	if err := b.Close(); err != nil {
		t.Error(err)
	}
}

// TestAServerThatComesBack shows that choir reconnects to a server that comes back, and that
// everything that it had acknowledged is there.
func TestAServerThatComesBack(t *testing.T) {
	dir := t.TempDir()
	s := serve(t, server.Options{JetStream: true, StoreDir: dir})
	port := s.Addr().String()[strings.LastIndexByte(s.Addr().String(), ':')+1:]
	b := open(t, bus.Options{URL: s.ClientURL()})
	defer b.Close()
	cid := contract.NewCID()
	if err := bus.EnsureStream(t.Context(), b.JetStream(), cid, 1); err != nil {
		t.Fatal(err)
	}
	if _, err := b.JetStream().Publish(t.Context(), "log."+string(cid)+".user.x", []byte("kept")); err != nil {
		t.Fatal(err)
	}
	s.Shutdown()
	s.WaitForShutdown()
	var n int
	if _, err := fmt.Sscan(port, &n); err != nil {
		t.Fatal(err)
	}
	choirtest.Eventually(t, patience, "it is seen that the server is gone", func() bool { return b.Health() != nil })
	serve(t, server.Options{JetStream: true, StoreDir: dir, Port: n})
	choirtest.Eventually(t, patience, "the bus works again", func() bool { return b.Health() == nil })
	stream, err := b.JetStream().Stream(t.Context(), contract.StreamLog(cid))
	if err != nil {
		t.Fatal(err)
	}
	if m, err := stream.GetMsg(t.Context(), 1); err != nil || string(m.Data) != "kept" {
		t.Errorf("%v %v", m, err)
	}
}
