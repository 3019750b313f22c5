package e2e_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/nats-io/nats.go"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/client"
	"choir.dev/choiros/internal/view"
	"choir.dev/choiros/test/choirtest"
)

// desk is a person at the desktop, without a browser: it sends what the claim page, the console and
// the desktop's page send.
type desk struct {
	console, origin string // the desktop's own origin
	cookie          string // of the desktop's session
	session         string // of the console's
	http            *http.Client
	bus             *nats.Conn
	inbox, streams  string // the subjects of this session on the bus
	cid             contract.CID
}

// lookAt is enter, and waits until the desktop's dev server answers.
func lookAt(t *testing.T, in *choirtest.Instance) *desk {
	t.Helper()
	d := enter(t, in)
	c, err := client.New(in.URL, in.Token, "")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	var status view.DesktopStatus
	defer func() {
		if t.Failed() {
			t.Logf("the desktop: %+v", status)
		}
	}()
	choirtest.Eventually(t, 90*time.Second, "the desktop is live", func() bool {
		frame, err := c.Frame(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		status = frame.Desktop
		return status.Mode == view.ModeLive
	})
	return d
}

// enter claims the computer and opens its desktop until the test ends.
func enter(t *testing.T, in *choirtest.Instance) *desk {
	t.Helper()
	d := signIn(t, in.ClaimURL)
	d.open(t, d.cid)
	return d
}

// own are the headers of a request that the console's own page makes.
func (d *desk) own() http.Header {
	h := http.Header{"Origin": {d.console}, "Sec-Fetch-Site": {"same-origin"}, "Content-Type": {"application/json"}}
	if d.session != "" {
		h.Set("Cookie", d.session)
	}
	return h
}

// signIn uses up a sign-in link as the claim page does.
func signIn(t *testing.T, link string) *desk {
	t.Helper()
	claim := mustParse(t, link)
	address := "127.0.0.1:" + claim.Port() // names below localhost need not resolve here
	transport := &http.Transport{DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, network, address)
	}}
	t.Cleanup(transport.CloseIdleConnections)
	d := &desk{console: claim.Scheme + "://" + claim.Host, http: &http.Client{
		Transport:     transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
	token, err := json.Marshal(map[string]string{"token": claim.Fragment, "name": "Somebody who looks"})
	if err != nil {
		t.Fatal(err)
	}
	var computer view.Computer
	b, session := d.must(t, http.MethodPost, d.console+"/api/claim", d.own(), token)
	decode(t, b, &computer)
	d.session, d.cid = session, computer.ID
	return d
}

// open opens a computer's desktop until the test ends.
func (d *desk) open(t *testing.T, cid contract.CID) {
	t.Helper()
	var ticket view.Ticket
	b, _ := d.must(t, http.MethodPost, d.console+"/api/computers/"+string(cid)+"/ticket", d.own(), nil)
	decode(t, b, &ticket)
	action := mustParse(t, ticket.Action)
	d.origin = action.Scheme + "://" + action.Host
	form := http.Header{"Origin": {d.console}, "Sec-Fetch-Site": {"same-site"}, "Sec-Fetch-Dest": {"iframe"}, "Sec-Fetch-Mode": {"navigate"},
		"Content-Type": {"application/x-www-form-urlencoded"}}
	_, d.cookie = d.must(t, http.MethodPost, ticket.Action, form, []byte(url.Values{"ticket": {ticket.Ticket}}.Encode()))

	d.cid = cid
	d.connect(t)
}

// connect opens the page's connection to the bus.
func (d *desk) connect(t *testing.T) {
	t.Helper()
	var s struct {
		NATS struct{ URL, JWT, Seed, Inbox, Streams string }
	}
	b, _ := d.must(t, http.MethodGet, d.origin+"/_choir/session", d.page(), nil)
	decode(t, b, &s)
	// A person counts as present for as long as the page is connected to the bus.
	bus, err := nats.Connect("nats://desktop", nats.SkipHostLookup(), nats.UserJWTAndSeed(s.NATS.JWT, s.NATS.Seed), nats.CustomInboxPrefix(s.NATS.Inbox),
		nats.SetCustomDialer(dialer(func() (net.Conn, error) {
			ctx := context.Background() // the connection outlives the dial; bus.Close ends it
			ws, _, err := websocket.Dial(ctx, strings.Replace(d.origin, "http", "ws", 1)+s.NATS.URL,
				&websocket.DialOptions{HTTPClient: d.http, HTTPHeader: d.page(), CompressionMode: websocket.CompressionDisabled})
			if err != nil {
				return nil, err
			}
			return websocket.NetConn(ctx, ws, websocket.MessageBinary), nil
		})), nats.NoReconnect())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(bus.Close)
	d.bus, d.inbox, d.streams = bus, s.NATS.Inbox, s.NATS.Streams
}

var devToken = regexp.MustCompile(`wsToken = "([A-Za-z0-9_-]+)"`)

// devToken returns the token that the dev server drew when it started, for its page's hot updates:
// a text that is in its memory.
func (d *desk) devToken(t *testing.T) string {
	t.Helper()
	script, _ := d.must(t, http.MethodGet, d.origin+"/@vite/client", d.page(), nil)
	m := devToken.FindSubmatch(script)
	if m == nil {
		t.Fatalf("the dev server's client script holds no token: %.500s", script)
	}
	return string(m[1])
}

// page are the headers of a request that the desktop's own page makes.
func (d *desk) page() http.Header {
	return http.Header{"Origin": {d.origin}, "Sec-Fetch-Site": {"same-origin"}, "Cookie": {d.cookie}}
}

// must sends a request and returns the answer's body and the cookie it sets.
func (d *desk) must(t *testing.T, method, to string, h http.Header, body []byte) (b []byte, cookie string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, to, bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header = h.Clone()
	res, err := d.http.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	b, err = io.ReadAll(io.LimitReader(res.Body, 8<<20))
	if err != nil {
		t.Fatal(err)
	}
	if res.StatusCode >= 400 {
		t.Fatalf("%s %s: %s: %.500s", method, to, res.Status, b)
	}
	for _, c := range res.Cookies() {
		cookie = fmt.Sprintf("%s=%s", c.Name, c.Value)
	}
	return b, cookie
}

type dialer func() (net.Conn, error)

func (d dialer) Dial(string, string) (net.Conn, error) { return d() }

func mustParse(t *testing.T, text string) *url.URL {
	t.Helper()
	u, err := url.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return u
}

func decode(t *testing.T, b []byte, v any) {
	t.Helper()
	if err := json.Unmarshal(b, v); err != nil {
		t.Fatalf("%v: %.500s", err, b)
	}
}
