package bus_test

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nkeys"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/bus"
	"choir.dev/choiros/internal/fault"
)

const patience = 10 * time.Second

func open(t testing.TB, dir string) *bus.Bus {
	t.Helper()
	b, err := bus.Open(t.Context(), bus.Options{Dir: filepath.Join(dir, "nats"), KeysDir: filepath.Join(dir, "keys"),
		Logger: slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn}))})
	if err != nil {
		t.Fatalf("open: %v", err)
	}
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return b
}

func mint(t testing.TB, b *bus.Bus, cid contract.CID, principal string) bus.Credentials {
	t.Helper()
	c, err := b.Mint(cid, principal, time.Hour)
	if err != nil {
		t.Fatalf("mint: %v", err)
	}
	return c
}

// bridge connects to the bus through Serve; errs receives what Serve returns.
type bridge struct {
	b    *bus.Bus
	errs chan error
}

func (d bridge) Dial(_, _ string) (net.Conn, error) {
	near, far := net.Pipe()
	go func() { d.errs <- d.b.Serve(context.Background(), far) }()
	return near, nil
}

type client struct {
	*nats.Conn
	errs   chan error // asynchronous errors from the server
	closed chan struct{}
	served chan error
}

func dial(b *bus.Bus, c bus.Credentials) (*client, error) {
	key, err := nkeys.FromSeed([]byte(c.Seed))
	if err != nil {
		return nil, err
	}
	out := &client{errs: make(chan error, 100), closed: make(chan struct{}), served: make(chan error, 10)}
	out.Conn, err = nats.Connect("nats://127.0.0.1", nats.SetCustomDialer(bridge{b, out.served}),
		nats.UserJWT(func() (string, error) { return c.JWT, nil }, key.Sign),
		nats.CustomInboxPrefix(c.Inbox), nats.NoReconnect(), nats.Timeout(patience),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { out.errs <- err }),
		nats.ClosedHandler(func(*nats.Conn) { close(out.closed) }))
	return out, err
}

// refused waits for the server's refusal of the client's last operation.
func (c *client) refused(t testing.TB, what string) {
	t.Helper()
	select {
	case err := <-c.errs:
		if !errors.Is(err, nats.ErrPermissionViolation) {
			t.Errorf("%s: %v", what, err)
		}
	case <-time.After(patience):
		t.Errorf("a client may %s", what)
	}
}

func connect(t testing.TB, b *bus.Bus, c bus.Credentials) *client {
	t.Helper()
	out, err := dial(b, c)
	if err != nil {
		t.Fatalf("connect: %v", err)
	}
	t.Cleanup(out.Close)
	return out
}

// answerAll answers every request that clients may make, as services do.
func answerAll(t testing.TB, b *bus.Bus, cid contract.CID) chan error {
	t.Helper()
	results := make(chan error, 100)
	for _, subject := range []string{contract.SubjectAction(cid), contract.SubjectServiceAll(cid)} {
		sub, err := b.Conn().Subscribe(subject, func(m *nats.Msg) { results <- b.Respond(m, []byte("answer")) })
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = sub.Unsubscribe() })
	}
	if err := b.Conn().Flush(); err != nil {
		t.Fatal(err)
	}
	return results
}

func TestClientReachesItsOwnComputer(t *testing.T) {
	b := open(t, t.TempDir())
	cid := contract.NewCID()
	ensure(t, b, cid)
	answerAll(t, b, cid)
	creds := mint(t, b, cid, "session-1")
	c := connect(t, b, creds)
	for _, subject := range []string{contract.SubjectAction(cid), contract.SubjectService(cid, "log", "read")} {
		m, err := c.Request(subject, []byte("{}"), patience)
		if err != nil || string(m.Data) != "answer" {
			t.Errorf("request on %s: %v", subject, err)
		}
	}
	h := nats.NewMsg(contract.SubjectAction(cid))
	h.Header.Set("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
	h.Data = []byte("with headers")
	if _, err := c.RequestMsg(h, patience); err != nil {
		t.Errorf("request with headers: %v", err)
	}
	for subject, filter := range map[string]string{
		"live." + string(cid) + ".user.prompt.submitted": contract.SubjectLive(cid),
		contract.SubjectTick(cid):                        contract.SubjectTick(cid),
		contract.SubjectResult(cid, "run1"):              contract.SubjectResult(cid, "*"),
		contract.SubjectTokens(cid, "session-1", "run1"): contract.SubjectStreams(cid, "session-1"),
	} {
		sub, err := c.SubscribeSync(filter)
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Flush(); err != nil {
			t.Fatal(err)
		}
		if err := b.Conn().Publish(subject, []byte("payload")); err != nil {
			t.Fatal(err)
		}
		m, err := sub.NextMsg(patience)
		if err != nil || string(m.Data) != "payload" {
			t.Errorf("%s on %s: %v", subject, filter, err)
			continue
		}
		if err := sub.Unsubscribe(); err != nil {
			t.Error(err)
		}
	}
}

// TestClientSubscribesToNothingElse shows that a client gets a permission error for any other
// subject, and nothing that is published there.
func TestClientSubscribesToNothingElse(t *testing.T) {
	b := open(t, t.TempDir())
	cid, other := contract.NewCID(), contract.NewCID()
	creds := mint(t, b, cid, "mine")
	mint(t, b, cid, "theirs")
	for _, subject := range []string{
		">", "*", "*.>", "*.*.>", "live.>", "live.*.>", "live.*.tick", contract.SubjectLive(other), contract.SubjectTick(other),
		"stream.>", "stream.*.*.>", contract.SubjectStreams(cid, "*"), contract.SubjectStreams(cid, "theirs"), contract.SubjectStreams(other, "mine"), contract.SubjectWords(cid, "*"), "words.>",
		"log.>", contract.SubjectLogAll(cid), "user.>", contract.SubjectAction(cid), contract.SubjectAction(other),
		"svc.>", contract.SubjectServiceAll(cid), contract.SubjectServiceAll(other), contract.SubjectResult(other, "*"), "agent.>", contract.SubjectResult(cid, "run1") + ".more",
		"_INBOX.>", "_INBOX.*.>", "_INBOX.theirs.>", "_INBOX.theirs.x", "_INBOX.mine", "_INBOX.mine2.>",
		"$JS.>", "$JS.API.>", "$JS.EVENT.>", "$JS.ACK.>", "$SYS.>", "$SYS.REQ.USER.INFO", "$O.>", "_R_.>", "$KV.>",
	} {
		c := connect(t, b, creds)
		sub, err := c.SubscribeSync(subject)
		if err != nil {
			t.Fatalf("%s: %v", subject, err)
		}
		if err := c.Flush(); err != nil {
			t.Fatalf("%s: %v", subject, err)
		}
		c.refused(t, "subscribe to "+subject)
		for _, published := range []string{contract.SubjectTick(other), "_INBOX.theirs.x", contract.SubjectLog(cid, contract.KindPerson, "prompt.submitted")} {
			if err := b.Conn().Publish(published, nil); err != nil {
				t.Fatal(err)
			}
		}
		if err := errors.Join(b.Conn().Flush(), c.Flush()); err != nil {
			t.Fatal(err)
		}
		if m, err := sub.NextMsg(time.Millisecond); err == nil {
			t.Errorf("subscribed to %s a client received %s", subject, m.Subject)
		}
		c.Close()
	}
}

// TestClientPublishesToNothingElse shows that a client gets a permission error for any other
// subject, and that what it publishes arrives nowhere.
func TestClientPublishesToNothingElse(t *testing.T) {
	b := open(t, t.TempDir())
	cid, other := contract.NewCID(), contract.NewCID()
	stream := contract.StreamLog(cid)
	ensure(t, b, cid, other)
	c := connect(t, b, mint(t, b, cid, "mine"))
	all, err := b.Conn().SubscribeSync(">")
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Conn().Flush(); err != nil {
		t.Fatal(err)
	}
	for _, subject := range []string{
		contract.SubjectLog(cid, contract.KindPerson, "prompt.submitted"), contract.SubjectLog(other, contract.KindSystem, "run.moved"),
		contract.SubjectTick(cid), contract.SubjectTick(other), contract.SubjectAction(other), contract.SubjectAction(cid) + ".x", "user." + string(cid),
		contract.SubjectService(other, "log", "read"), contract.SubjectResult(cid, "run1"), contract.SubjectTokens(cid, "mine", "run1"), contract.SubjectTokens(cid, "theirs", "run1"), contract.SubjectWords(cid, "run1"), "_INBOX.mine.x", "_INBOX.theirs.x",
		"$JS.API.INFO", "$JS.API.STREAM.NAMES", "$JS.API.STREAM.PURGE." + stream, "$JS.API.STREAM.DELETE." + stream, "$JS.API.DIRECT.GET." + stream,
		"$JS.API.STREAM.MSG.GET." + stream, "$JS.API.CONSUMER.CREATE." + stream, "$JS.ACK." + stream + ".x", "$SYS.REQ.USER.INFO", "$SYS.REQ.SERVER.PING", "$SYS.REQ.ACCOUNT.X.CLAIMS.UPDATE", "anything",
	} {
		if err := c.Publish(subject, []byte("forged")); err != nil {
			t.Fatalf("%s: %v", subject, err)
		}
		if err := c.Flush(); err != nil {
			t.Fatalf("%s: %v", subject, err)
		}
		c.refused(t, "publish to "+subject)
	}
	if err := b.Conn().Flush(); err != nil {
		t.Fatal(err)
	}
	for {
		m, err := all.NextMsg(time.Millisecond)
		if err != nil {
			break
		}
		if string(m.Data) == "forged" {
			t.Errorf("a forged message arrived on %s", m.Subject)
		}
	}
}

// TestReplySubjectsAreTheClientsOwn shows that a reply subject outside the client's own inbox ends
// its connection before anything is delivered, and that the services refuse such a request as well.
func TestReplySubjectsAreTheClientsOwn(t *testing.T) {
	b := open(t, t.TempDir())
	cid, other := contract.NewCID(), contract.NewCID()
	ensure(t, b, cid, other)
	results := answerAll(t, b, cid)
	creds := mint(t, b, cid, "mine")
	mint(t, b, cid, "theirs")
	mint(t, b, other, "foreign")
	before := streamMessages(t, b)
	replies := []string{
		contract.SubjectLog(cid, contract.KindPerson, "prompt.submitted"), contract.SubjectLog(other, contract.KindSystem, "run.moved"),
		contract.SubjectTick(other), contract.SubjectAction(other), "_INBOX.theirs.x", "_INBOX.foreign.x", "_INBOX.mine", "_INBOX.mine2.x",
		"$JS.API.STREAM.PURGE." + contract.StreamLog(cid), "$SYS.REQ.SERVER.PING",
	}
	for _, reply := range replies {
		for _, headers := range []bool{false, true} {
			c := connect(t, b, creds)
			m := nats.NewMsg(contract.SubjectAction(cid))
			m.Reply = reply
			if headers {
				m.Header.Set("X", "y")
			}
			if err := c.PublishMsg(m); err != nil {
				t.Fatal(err)
			}
			_ = c.Flush() // an error, since the connection is closed
			if err := wait(t, c.served); !fault.Is(err, fault.Denied) {
				t.Errorf("reply %s (headers %t): the bridge returned %v", reply, headers, err)
			}
			c.Close()
		}
	}
	if err := b.Conn().Flush(); err != nil {
		t.Fatal(err)
	}
	if n := len(results); n != 0 {
		t.Errorf("%d requests with a forged reply subject reached a service", n)
	}
	// This is the responder's own check, without the bridge.
	for _, reply := range append(replies, "", "_INBOX.mine.*", "_INBOX.mine.>", "_INBOX.nobody.x") {
		m := nats.NewMsg(contract.SubjectAction(cid))
		m.Reply = reply
		if reply == "_INBOX.theirs.x" {
			continue // the subject is the same computer's, so only the bridge can tell it apart
		}
		if err := b.Respond(m, []byte("{}")); !fault.Is(err, fault.Denied) {
			t.Errorf("a service would answer to %q: %v", reply, err)
		}
	}
	good := nats.NewMsg(contract.SubjectService(cid, "log", "read"))
	good.Reply = "_INBOX.mine.x.1"
	if got, principal, err := b.Caller(good); err != nil || got != cid || principal != "mine" {
		t.Errorf("caller of a proper request: %s %s %v", got, principal, err)
	}
	if after := streamMessages(t, b); after != before {
		t.Errorf("the log grew from %d to %d messages", before, after)
	}
}

// ensure makes computers' streams, as opening their logs does.
func ensure(t testing.TB, b *bus.Bus, cids ...contract.CID) {
	t.Helper()
	for _, cid := range cids {
		if err := bus.EnsureStream(t.Context(), b.JetStream(), cid, 1); err != nil {
			t.Fatal(err)
		}
	}
}

func streamMessages(t testing.TB, b *bus.Bus) uint64 {
	t.Helper()
	sum := uint64(0)
	all := b.JetStream().ListStreams(t.Context())
	for s := range all.Info() {
		sum += s.State.Msgs
	}
	if err := all.Err(); err != nil {
		t.Fatal(err)
	}
	return sum
}

func wait[T any](t testing.TB, c <-chan T) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(patience):
		t.Fatal("waited in vain")
		panic("unreachable")
	}
}

func TestMessageTracingWritesNowhere(t *testing.T) {
	b := open(t, t.TempDir())
	cid := contract.NewCID()
	ensure(t, b, cid)
	c := connect(t, b, mint(t, b, cid, "mine"))
	before := streamMessages(t, b)
	m := nats.NewMsg(contract.SubjectAction(cid))
	m.Header.Set("Nats-Trace-Dest", contract.SubjectLog(cid, contract.KindPerson, "prompt.submitted"))
	if err := errors.Join(c.PublishMsg(m), c.Flush(), b.Conn().Flush()); err != nil {
		t.Fatal(err)
	}
	if after := streamMessages(t, b); after != before {
		t.Errorf("a trace wrote %d messages into the log", after-before)
	}
}

func TestRevokeEndsConnections(t *testing.T) {
	b := open(t, t.TempDir())
	cid := contract.NewCID()
	first, second := mint(t, b, cid, "gone"), mint(t, b, cid, "gone")
	stay := connect(t, b, mint(t, b, cid, "stays"))
	one, two := connect(t, b, first), connect(t, b, second)
	if err := b.Revoke("gone"); err != nil {
		t.Fatal(err)
	}
	wait(t, one.closed)
	wait(t, two.closed)
	if c, err := dial(b, first); err == nil {
		c.Close()
		t.Error("revoked credentials connect again")
	}
	if err := stay.FlushTimeout(patience); err != nil {
		t.Errorf("another session was cut off: %v", err)
	}
	// The same principal may connect again.
	connect(t, b, mint(t, b, cid, "gone"))
	if err := b.Revoke("never seen"); err != nil {
		t.Errorf("revoking nobody: %v", err)
	}
}

// TestWhoIsAnsweredNoMoreIsCutOff moves the clock past the end of the credentials while the
// server's own timer does not fire, as happens after a machine was suspended.
func TestWhoIsAnsweredNoMoreIsCutOff(t *testing.T) {
	dir := t.TempDir()
	var ahead atomic.Int64
	b, err := bus.Open(t.Context(), bus.Options{Dir: filepath.Join(dir, "nats"), KeysDir: filepath.Join(dir, "keys"),
		Now: func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
	cid := contract.NewCID()
	c := connect(t, b, mint(t, b, cid, "sleeper"))
	if err := c.FlushTimeout(patience); err != nil {
		t.Fatal(err)
	}
	ahead.Store(int64(2 * time.Hour))
	if err := c.Publish(contract.SubjectAction(cid), []byte("{}")); err != nil {
		t.Fatal(err)
	}
	wait(t, c.closed)
	if err := wait(t, c.served); !fault.Is(err, fault.Denied) {
		t.Errorf("the bridge returned %v", err)
	}
	// With new credentials it can connect again.
	again := connect(t, b, mint(t, b, cid, "sleeper"))
	if err := again.FlushTimeout(patience); err != nil {
		t.Error(err)
	}
}

func TestCredentialsExpire(t *testing.T) {
	b := open(t, t.TempDir())
	cid := contract.NewCID()
	creds, err := b.Mint(cid, "brief", 2*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	c := connect(t, b, creds)
	wait(t, c.closed) // the server ends it
	if c, err := dial(b, creds); err == nil {
		c.Close()
		t.Error("expired credentials connect")
	}
	m := nats.NewMsg(contract.SubjectAction(cid))
	m.Reply = "_INBOX.brief.x"
	if err := b.Respond(m, nil); !fault.Is(err, fault.Denied) {
		t.Errorf("answering an expired session: %v", err)
	}
}

func TestMintRefuses(t *testing.T) {
	b := open(t, t.TempDir())
	cid := contract.NewCID()
	mint(t, b, cid, "taken")
	for name, tc := range map[string]struct {
		cid       contract.CID
		principal string
		ttl       time.Duration
		want      fault.Code
	}{
		"bad cid":           {"x.>", "p", time.Minute, fault.Invalid},
		"wildcard":          {cid, "*", time.Minute, fault.Invalid},
		"several tokens":    {cid, "a.b", time.Minute, fault.Invalid},
		"empty":             {cid, "", time.Minute, fault.Invalid},
		"too long":          {cid, strings.Repeat("a", 65), time.Minute, fault.Invalid},
		"no time":           {cid, "p", 0, fault.Invalid},
		"for ever":          {cid, "p", 1000 * time.Hour, fault.Invalid},
		"another computers": {contract.NewCID(), "taken", time.Minute, fault.Denied},
	} {
		if _, err := b.Mint(tc.cid, tc.principal, tc.ttl); !fault.Is(err, tc.want) {
			t.Errorf("%s: got %v, want %s", name, err, tc.want)
		}
	}
}

func TestRestart(t *testing.T) {
	dir := t.TempDir()
	b := open(t, dir)
	cid := contract.NewCID()
	creds := mint(t, b, cid, "before")
	ensure(t, b, cid)
	if _, err := b.JetStream().Publish(t.Context(), contract.SubjectLog(cid, contract.KindPerson, "prompt.submitted"), []byte("kept")); err != nil {
		t.Fatal(err)
	}
	files := []string{"operator.nk", "system.nk", "account.nk"}
	keys := map[string]string{}
	for _, f := range files {
		info, err := os.Stat(filepath.Join(dir, "keys", f))
		if err != nil || info.Mode().Perm() != 0o600 {
			t.Fatalf("%s: %v, %v; want mode 0600", f, info, err)
		}
		seed, err := os.ReadFile(filepath.Join(dir, "keys", f))
		if err != nil {
			t.Fatal(err)
		}
		keys[f] = string(seed)
	}
	if err := errors.Join(b.Close(), b.Close()); err != nil {
		t.Fatal(err)
	}
	b = open(t, dir)
	for _, f := range files {
		if seed, err := os.ReadFile(filepath.Join(dir, "keys", f)); err != nil || string(seed) != keys[f] {
			t.Errorf("%s changed over a restart (%v)", f, err)
		}
	}
	s, err := b.JetStream().Stream(t.Context(), contract.StreamLog(cid))
	if err != nil {
		t.Fatal(err)
	}
	m, err := s.GetMsg(t.Context(), 1)
	if err != nil || string(m.Data) != "kept" {
		t.Errorf("after a restart: %v", err)
	}
	if c, err := dial(b, creds); err == nil {
		c.Close()
		t.Error("credentials outlive the process")
	}
	connect(t, b, mint(t, b, cid, "after"))
}

func TestOpenRefuses(t *testing.T) {
	dir := t.TempDir()
	b := open(t, dir)
	opts := bus.Options{Dir: filepath.Join(dir, "nats"), KeysDir: filepath.Join(dir, "keys")}
	if second, err := bus.Open(t.Context(), opts); !fault.Is(err, fault.InUse) || fault.HintOf(err) == "" {
		if err == nil {
			_ = second.Close()
		}
		t.Errorf("a second bus on the same directory: %v", err)
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	// A damaged key is refused, not replaced: the stored log belongs to it.
	key := filepath.Join(dir, "keys", "account.nk")
	if err := os.WriteFile(key, []byte("SUAgarbage\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if second, err := bus.Open(t.Context(), opts); !fault.Is(err, fault.Damaged) {
		if err == nil {
			_ = second.Close()
		}
		t.Errorf("with a damaged key: %v", err)
	}
	if err := os.Remove(filepath.Join(dir, "nats", "bus.lock")); errors.Is(err, fs.ErrNotExist) {
		t.Error("the lock is not where it is expected")
	}
}
