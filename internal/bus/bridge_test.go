package bus_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/fault"
)

// TestBridgeRefusesOddProtocol sends raw bytes that no client library would send.
func TestBridgeRefusesOddProtocol(t *testing.T) {
	b := open(t, t.TempDir())
	cid := contract.NewCID()
	creds := mint(t, b, cid, "mine")
	results := answerAll(t, b, cid)
	action := contract.SubjectAction(cid)
	// Only the server checks the signature, so any will do.
	hello := fmt.Sprintf(`CONNECT {"jwt":%q,"sig":"x","verbose":false}`, creds.JWT) + "\r\n"
	for name, bytes := range map[string]string{
		"pub before connect":    "PUB " + action + " 2\r\nhi\r\n",
		"sub before connect":    "SUB > 1\r\n",
		"ping before connect":   "PING\r\n",
		"connect without jwt":   "CONNECT {}\r\n",
		"connect with password": `CONNECT {"user":"a","pass":"b"}` + "\r\n",
		"connect not json":      "CONNECT {\r\n",
		"unknown credentials":   `CONNECT {"jwt":"eyJ0eXAiOiJKV1QiLCJhbGciOiJlZDI1NTE5LW5rZXkifQ.e30.AA"}` + "\r\n",
		"connect twice":         hello + hello,
		"endless line":          hello + "SUB " + strings.Repeat("a", 10<<10) + " 1\r\n",
		"bare newline":          hello + "PING\n",
		"server's own verb":     hello + "MSG " + action + " 1 2\r\nhi\r\n",
		"route verb":            hello + "RS+ A >\r\n",
		"info":                  hello + "INFO {}\r\n",
		"control character":     hello + "PUB " + action + "\vlog.x 2\r\nhi\r\n",
		"foreign reply":         hello + "PUB " + action + " log.x 2\r\nhi\r\n",
		"foreign reply, tabs":   hello + "pub\t" + action + "\tlog.x\t2\r\nhi\r\n",
		"foreign reply, case":   hello + "pUb " + action + " _inbox.mine.x 2\r\nhi\r\n",
		"negative size":         hello + "PUB " + action + " -1\r\nhi\r\n",
		"signed size":           hello + "PUB " + action + " +2\r\nhi\r\n",
		"huge size":             hello + "PUB " + action + " 999999999999999999999\r\nhi\r\n",
		"over the limit":        hello + "PUB " + action + " 300000\r\n",
		"payload too long":      hello + "PUB " + action + " 2\r\nhiPUB log.x 1\r\nx\r\n",
		"headers beyond total":  hello + "HPUB " + action + " 20 10\r\n0123456789\r\n",
		"four arguments":        hello + "PUB " + action + " _INBOX.mine.x log.x 2\r\nhi\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			near, far := net.Pipe()
			served := make(chan error, 1)
			go func() { served <- b.Serve(context.Background(), far) }()
			go func() { _, _ = io.Copy(io.Discard, near) }()
			_ = near.SetWriteDeadline(time.Now().Add(patience))
			_, _ = io.WriteString(near, bytes) // may fail half-way, when the bridge hangs up
			err := wait(t, served)
			// The signature is wrong, so the server may hang up before the bridge does.
			if !fault.Is(err, fault.Denied) && (err != nil || !strings.HasPrefix(bytes, hello)) {
				t.Errorf("the bridge returned %v", err)
			}
			_ = near.Close()
		})
	}
	if err := b.Conn().Flush(); err != nil {
		t.Fatal(err)
	}
	if len(results) != 0 {
		t.Errorf("%d messages reached a service", len(results))
	}
}

// TestStolenJWTIsUseless connects with a genuine JWT and the wrong key: the server's nonce keeps
// out whoever has only seen the JWT.
func TestStolenJWTIsUseless(t *testing.T) {
	b := open(t, t.TempDir())
	cid := contract.NewCID()
	mine, theirs := mint(t, b, cid, "mine"), mint(t, b, cid, "theirs")
	theirs.Seed = mine.Seed
	if c, err := dial(b, theirs); err == nil {
		c.Close()
		t.Error("a JWT connects with another's key")
	}
}

func TestServeEndsWithItsContextAndTheBus(t *testing.T) {
	b := open(t, t.TempDir())
	serve := func(ctx context.Context) (net.Conn, chan error) {
		near, far := net.Pipe()
		served := make(chan error, 1)
		go func() { served <- b.Serve(ctx, far) }()
		if line, err := bufio.NewReader(near).ReadString('\n'); err != nil || !strings.HasPrefix(line, "INFO ") {
			t.Fatalf("greeting %q, %v", line, err)
		}
		return near, served
	}
	ctx, cancel := context.WithCancel(t.Context())
	conn, served := serve(ctx)
	cancel()
	if err := wait(t, served); err != nil {
		t.Errorf("after its context ended: %v", err)
	}
	if _, err := conn.Read(make([]byte, 1)); err == nil {
		t.Error("the connection is still open")
	}
	conn, served = serve(context.Background())
	_ = conn.Close()
	if err := wait(t, served); err != nil {
		t.Errorf("after the client left: %v", err)
	}
	_, served = serve(context.Background())
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	if err := wait(t, served); err != nil {
		t.Errorf("after the bus closed: %v", err)
	}
	near, far := net.Pipe()
	if err := b.Serve(t.Context(), far); !fault.Is(err, fault.Unavailable) {
		t.Errorf("serving on a closed bus: %v", err)
	}
	_ = near.Close()
}

// TestSlowReaderIsCutOff shows that a client that does not read is disconnected, and does not delay
// others.
func TestSlowReaderIsCutOff(t *testing.T) {
	b := open(t, t.TempDir())
	cid := contract.NewCID()
	slow := connect(t, b, mint(t, b, cid, "slow"))
	release := make(chan struct{})
	defer close(release)
	if _, err := slow.Subscribe(contract.SubjectLive(cid), func(*nats.Msg) { <-release }); err != nil {
		t.Fatal(err)
	}
	quick := connect(t, b, mint(t, b, cid, "quick"))
	sub, err := quick.SubscribeSync(contract.SubjectTick(cid))
	if err != nil {
		t.Fatal(err)
	}
	if err := slow.Flush(); err != nil {
		t.Fatal(err)
	}
	if err := quick.Flush(); err != nil {
		t.Fatal(err)
	}
	for range 50 {
		if err := b.Conn().Publish(contract.SubjectTick(cid), make([]byte, 100<<10)); err != nil {
			t.Fatal(err)
		}
		if _, err := sub.NextMsg(patience); err != nil {
			t.Fatalf("the quick reader: %v", err)
		}
	}
}
