package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/coder/websocket"
	"github.com/nats-io/nats.go"

	"choir.dev/choiros/bench/report"
	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/lazy"
	"choir.dev/choiros/internal/view"
)

// desk is a person's desktop as a browser opens it: claimed, with the console's session and
// the desktop's.
type desk struct {
	cid     contract.CID
	origin  string // the desktop's
	cookie  string // the desktop's session
	http    *http.Client
	console string
	own     http.Header // the headers of a request from the console's own page
}

const answerLimit = 8 << 20

// openDesk claims the computer with the link of `choir up`, as the claim page
// does, and enters its desktop, as the console's frame does.
func openDesk(ctx context.Context, p *plane) (*desk, error) {
	claim, err := url.Parse(p.ClaimURL)
	if err != nil {
		return nil, err
	}
	address := "127.0.0.1:" + claim.Port()
	d := &desk{console: claim.Scheme + "://" + claim.Host, http: &http.Client{
		// Names below localhost need not resolve here, so loopback is dialled.
		Transport: &http.Transport{DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, network, address)
		}},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
	body, err := json.Marshal(map[string]string{"token": claim.Fragment, "name": "Bench"})
	if err != nil {
		return nil, err
	}
	d.own = http.Header{"Origin": {d.console}, "Sec-Fetch-Site": {"same-origin"}, "Content-Type": {"application/json"}}
	var c view.Computer
	session, err := d.ask(ctx, http.MethodPost, d.console+"/api/claim", d.own, body, &c)
	if err != nil {
		return nil, err
	}
	d.cid = c.ID
	d.own.Set("Cookie", session)
	return d.enter(ctx)
}

// enter opens the desktop once more, with another session.
func (d *desk) enter(ctx context.Context) (*desk, error) {
	again := *d
	d = &again
	var t view.Ticket
	if _, err := d.ask(ctx, http.MethodPost, d.console+"/api/computers/"+string(d.cid)+"/ticket", d.own, nil, &t); err != nil {
		return nil, err
	}
	action, err := url.Parse(t.Action)
	if err != nil {
		return nil, err
	}
	d.origin = action.Scheme + "://" + action.Host
	form := http.Header{"Origin": {d.console}, "Sec-Fetch-Site": {"same-site"}, "Sec-Fetch-Dest": {"iframe"}, "Sec-Fetch-Mode": {"navigate"},
		"Content-Type": {"application/x-www-form-urlencoded"}}
	d.cookie, err = d.ask(ctx, http.MethodPost, t.Action, form, []byte(url.Values{"ticket": {t.Ticket}}.Encode()), nil)
	return d, err
}

// ask sends a request and returns the cookie that the answer sets.
func (d *desk) ask(ctx context.Context, method, to string, h http.Header, body []byte, out any) (cookie string, err error) {
	req, err := http.NewRequestWithContext(ctx, method, to, bytes.NewReader(body))
	if err != nil {
		return "", err
	}
	req.Header = h.Clone()
	res, err := d.http.Do(req)
	if err != nil {
		return "", err
	}
	defer res.Body.Close()
	b, err := io.ReadAll(io.LimitReader(res.Body, answerLimit))
	if err != nil {
		return "", err
	}
	if res.StatusCode >= 400 {
		return "", fmt.Errorf("%s %s: %s: %s", method, to, res.Status, report.OneLine(string(b)))
	}
	if text, ok := out.(*string); ok {
		*text = string(b)
	} else if out != nil {
		err = json.Unmarshal(b, out)
	}
	for _, c := range res.Cookies() {
		cookie = c.Name + "=" + c.Value
	}
	return cookie, err
}

// page are the headers of a request that the desktop's own page makes.
func (d *desk) page() http.Header {
	return http.Header{"Origin": {d.origin}, "Sec-Fetch-Site": {"same-origin"}, "Cookie": {d.cookie}}
}

func (d *desk) socket(ctx context.Context, path string, protocols ...string) (*websocket.Conn, error) {
	ws, res, err := websocket.Dial(ctx, strings.Replace(d.origin, "http", "ws", 1)+path,
		&websocket.DialOptions{HTTPClient: d.http, HTTPHeader: d.page(), Subprotocols: protocols, CompressionMode: websocket.CompressionDisabled})
	if err != nil && res != nil {
		err = fmt.Errorf("%w (%s)", err, res.Status)
	}
	return ws, err
}

// live connects to the bus as the desktop's page does.
func (d *desk) live(ctx context.Context) (*nats.Conn, error) {
	var s struct {
		NATS struct{ URL, JWT, Seed, Inbox string }
	}
	if _, err := d.ask(ctx, http.MethodGet, d.origin+"/_choir/session", d.page(), nil, &s); err != nil {
		return nil, err
	}
	return nats.Connect("nats://desktop", nats.SkipHostLookup(), nats.UserJWTAndSeed(s.NATS.JWT, s.NATS.Seed), nats.CustomInboxPrefix(s.NATS.Inbox),
		nats.SetCustomDialer(dialer(func() (net.Conn, error) {
			ws, err := d.socket(ctx, s.NATS.URL)
			if err != nil {
				return nil, err
			}
			return websocket.NetConn(ctx, ws, websocket.MessageBinary), nil
		})), nats.NoReconnect())
}

type dialer func() (net.Conn, error)

func (d dialer) Dial(string, string) (net.Conn, error) { return d() }

// events renames the computer and waits until the desktop's connection has the event. The time
// counts from the request's first byte, so it includes the append.
func events(ctx context.Context, e *env) (_ []report.Result, err error) {
	p, err := e.up(ctx, e.dir+"/data")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, p.Close()) }()
	d, err := openDesk(ctx, p)
	if err != nil {
		return nil, err
	}
	conn, err := d.live(ctx)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	got := make(chan *nats.Msg, 1024)
	sub, err := conn.ChanSubscribe("live."+string(d.cid)+".>", got)
	if err != nil {
		return nil, err
	}
	if err := errors.Join(conn.FlushWithContext(ctx), e.quiet(ctx, p.PID)); err != nil {
		return nil, err
	}
	c, err := p.client()
	if err != nil {
		return nil, err
	}
	defer c.Close()
	sync, err := newSyncer(e.dir)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, sync.Close()) }()
	var ours sample
	var raw times
	for i := range e.size(150, 3) {
		name := fmt.Sprint("Bench ", i)
		errs := make(chan error, 1)
		err := ours.try(p.meter, func() error {
			go func() { _, err := c.Rename(ctx, name); errs <- err }()
			return await(ctx, got, func(b []byte) bool {
				ev, err := contract.UnmarshalEvent(b)
				return err == nil && ev.Type == "computer.renamed" && bytes.Contains(ev.Data, []byte(`"`+name+`"`))
			})
		})
		if err = errors.Join(err, <-errs, raw.timed(sync.sync)); err != nil {
			return nil, err
		}
		if i == 0 && !e.Tiny {
			ours, raw = sample{}, nil
		}
	}
	if err := sub.Unsubscribe(); err != nil {
		return nil, err
	}
	return []report.Result{ours.tell(report.Result{ID: "event", What: "event until a desktop has it", Raw: raw.ms(), RawWhat: "one write and fsync on this disk", Target: report.AtMost(report.OfOurs, 2, "ms"),
		Ratio: over(ours.p50(), raw.p50()), Note: "From a request to the API, through the log, to a NATS client on the desktop's own WebSocket."})}, nil
}

func await(ctx context.Context, got <-chan *nats.Msg, is func([]byte) bool) error {
	limit := time.NewTimer(10 * time.Second)
	defer limit.Stop()
	for {
		select {
		case m := <-got:
			if is(m.Data) {
				return nil
			}
		case <-limit.C:
			return errors.New("the event did not come within 10 s")
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// quiet waits until a process uses little processor time: what it does after its start, or
// after a desktop was opened, is not to be measured here.
func (e *env) quiet(ctx context.Context, pid int) error {
	if e.Tiny {
		return nil
	}
	tick := time.NewTicker(250 * time.Millisecond)
	defer tick.Stop()
	var before time.Duration
	limit := time.Now().Add(15 * time.Second)
	for calm := 0; calm < 4 && time.Now().Before(limit); {
		used, err := processor(pid)
		if err != nil {
			return err
		}
		if calm++; used-before > 25*time.Millisecond {
			calm = 0
		}
		before = used
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

var viteToken = lazy.Regexp(`wsToken = "([A-Za-z0-9_-]+)"`)

// hmr sends WebSocket pings to the dev server on the connection that carries hot updates to
// the page: the same proxy, tether and box.
func hmr(ctx context.Context, e *env) (_ []report.Result, err error) {
	data := e.dir + "/data"
	if err := e.shareModules(data); err != nil {
		return nil, err
	}
	p, err := e.up(ctx, data)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, p.Close()) }()
	d, err := openDesk(ctx, p)
	if err != nil {
		return nil, err
	}
	conn, err := d.live(ctx) // a connected desktop makes the dev server start
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	token, err := d.viteToken(ctx)
	if err != nil {
		return nil, err
	}
	ws, err := d.socket(ctx, "/?token="+token, "vite-hmr")
	if err != nil {
		return nil, err
	}
	defer func() { _ = ws.CloseNow() }() // the answer to the close does not matter
	hello := make(chan struct{})
	go func() { // ends when ws is closed
		first := true
		for {
			if _, _, err := ws.Read(ctx); err != nil {
				return
			}
			if first {
				close(hello)
				first = false
			}
		}
	}()
	select {
	case <-hello:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if err := e.quiet(ctx, p.PID); err != nil {
		return nil, err
	}
	var ours times
	for i := range e.size(300, 3) {
		if err := ours.timed(func() error { return ws.Ping(ctx) }); err != nil {
			return nil, err
		}
		if i == 0 && !e.Tiny {
			ours = nil
		}
	}
	pings := report.Result{ID: "hmr", What: "hot update: added by our proxy", Ours: ours.ms(), P99: millis(ours.p(0.99)), Target: report.AtMost(report.OfOurs, 1, "ms"),
		Note: "An upper bound: a WebSocket ping on the connection that carries hot updates, from the client through control plane, tether and box to the dev server and back, both ways and the dev server's answer included."}
	save, err := saved(ctx, e)
	if err != nil {
		return []report.Result{pings}, err
	}
	return []report.Result{pings, save}, nil
}

// viteToken reads the token for the hot update connection from the dev server's
// client script, once the dev server answers.
func (d *desk) viteToken(ctx context.Context) (string, error) {
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	limit := time.Now().Add(60 * time.Second)
	for {
		var script string
		_, err := d.ask(ctx, http.MethodGet, d.origin+"/@vite/client", d.page(), nil, &script)
		if m := viteToken().FindStringSubmatch(script); m != nil {
			return m[1], nil
		}
		if time.Now().After(limit) {
			return "", missingError{"the dev server did not answer within 60 s (it needs Node.js and the desktop's dependencies): " + fmt.Sprint(err)}
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return "", ctx.Err()
		}
	}
}
