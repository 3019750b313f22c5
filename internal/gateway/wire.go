package gateway

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"sync"
	"time"

	"choir.dev/choiros/internal/awake"
	"choir.dev/choiros/internal/gateway/provider"
)

// newTransport uses the machine's proxy for https only: with plain http the proxy could read the
// key.
func newTransport() *http.Transport {
	return &http.Transport{
		Proxy: func(r *http.Request) (*url.URL, error) {
			if r.URL.Scheme != "https" {
				return nil, nil
			}
			return http.ProxyFromEnvironment(r)
		},
		DialContext:           (&net.Dialer{Timeout: 10 * time.Second, KeepAlive: 30 * time.Second}).DialContext,
		TLSHandshakeTimeout:   10 * time.Second,
		ForceAttemptHTTP2:     true,
		MaxIdleConnsPerHost:   8,
		IdleConnTimeout:       90 * time.Second,
		ExpectContinueTimeout: time.Second,
		// Header bytes are bounded here, and those of the body by guard.
		MaxResponseHeaderBytes: 64 << 10,
	}
}

// validBase checks a base URL and gives it a trailing slash. Plain http is only
// for this machine and private networks, since the key travels in a header.
func validBase(raw string) (string, error) {
	u, err := url.Parse(raw)
	switch {
	case err != nil:
		return "", errors.New("it is not a URL")
	case u.Scheme != "https" && u.Scheme != "http":
		return "", fmt.Errorf("its scheme is %q; it must be https, or http on a private network", u.Scheme)
	case u.User != nil:
		return "", errors.New("it has a user name; keys belong in the key's own setting")
	case u.RawQuery != "" || u.Fragment != "" || u.Opaque != "":
		return "", errors.New("it has a query or fragment")
	case u.Hostname() == "":
		return "", errors.New("it has no host")
	}
	host := strings.ToLower(u.Hostname())
	if ip, err := netip.ParseAddr(host); err == nil {
		ip = ip.Unmap()
		if ip.IsLinkLocalUnicast() || ip.IsMulticast() || ip.IsUnspecified() {
			return "", fmt.Errorf("%s is not an address of a model service", ip)
		}
		if u.Scheme == "http" && !ip.IsLoopback() && !ip.IsPrivate() {
			return "", errors.New("plain http would send the key in the clear; use https")
		}
	} else if u.Scheme == "http" && !privateName(host) {
		return "", errors.New("plain http would send the key in the clear; use https")
	}
	u.Path = strings.TrimRight(u.Path, "/") + "/"
	return u.String(), nil
}

func privateName(host string) bool {
	if !strings.Contains(host, ".") {
		return true // localhost, or a name of the local network
	}
	for _, s := range []string{".localhost", ".local", ".internal", ".lan", ".home.arpa"} {
		if strings.HasSuffix(host, s) {
			return true
		}
	}
	return false
}

// client talks to one base address only and bounds time and size.
func (g *Gateway) client(base string, p *pulse) *http.Client {
	u, err := url.Parse(base)
	if err != nil { // validBase has parsed it already
		u = &url.URL{}
	}
	return &http.Client{
		Transport:     &guard{inner: g.transport, base: u, limits: g.limits, pulse: p},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// guard is the transport of one call.
type guard struct {
	inner  http.RoundTripper
	base   *url.URL
	limits Limits
	pulse  *pulse // nil: the answer is not a model's turn
}

// pulse ends a call whose connection lives, but whose answer does not grow.
type pulse struct {
	mu    sync.Mutex
	timer *awake.Timer
	limit time.Duration
}

// start calls end once the answer has not grown for the limit.
func (p *pulse) start(limit time.Duration, end func()) {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.limit = limit
	p.timer = awake.AfterFunc(limit, end)
}

// beat says that the answer grew.
func (p *pulse) beat() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.timer != nil {
		p.timer.Reset(p.limit)
	}
}

func (p *pulse) stop() {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.timer != nil {
		p.timer.Stop()
		p.timer = nil
	}
}

// slow returns why a call that nothing came of was ended, or err if something else ended it.
func slow(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause == provider.ErrSlow || cause == provider.ErrStalled {
		return cause
	}
	return err
}

// RoundTrip implements http.RoundTripper.
func (t *guard) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.URL.Scheme != t.base.Scheme || req.URL.Host != t.base.Host {
		return nil, &provider.Error{Code: provider.CodeInvalid, Message: "keys are sent only to the configured address"}
	}
	ctx, cancel := context.WithCancelCause(req.Context())
	timer := awake.AfterFunc(t.limits.FirstByte, func() { cancel(provider.ErrSlow) })
	t.pulse.start(t.limits.Stall, func() { cancel(provider.ErrStalled) })
	resp, err := t.inner.RoundTrip(req.WithContext(ctx))
	if err != nil {
		timer.Stop()
		t.pulse.stop()
		err = slow(ctx, err)
		cancel(nil)
		return nil, err
	}
	if resp.StatusCode >= 300 && resp.StatusCode < 400 {
		timer.Stop()
		t.pulse.stop()
		err := provider.StatusError(resp.StatusCode, resp.Header, "", time.Now())
		resp.Body.Close()
		cancel(nil)
		return nil, err
	}
	resp.Body = &guardedBody{rc: resp.Body, ctx: ctx, cancel: cancel, timer: timer, pulse: t.pulse, idle: t.limits.Idle, left: t.limits.Body}
	return resp, nil
}

// guardedBody ends an answer that stalls or never ends. The first read may take what is left of the
// time until the first byte.
type guardedBody struct {
	rc     io.ReadCloser
	ctx    context.Context
	cancel context.CancelCauseFunc
	timer  *awake.Timer
	pulse  *pulse
	idle   time.Duration
	left   int64
}

func (b *guardedBody) Read(p []byte) (int, error) {
	if b.left <= 0 {
		return 0, provider.ErrBody
	}
	if int64(len(p)) > b.left {
		p = p[:b.left]
	}
	n, err := b.rc.Read(p)
	b.left -= int64(n)
	b.timer.Reset(b.idle)
	if err != nil {
		b.timer.Stop()
		if err != io.EOF {
			err = slow(b.ctx, err)
		}
	}
	return n, err
}

func (b *guardedBody) Close() error {
	b.timer.Stop()
	b.pulse.stop()
	err := b.rc.Close()
	b.cancel(nil)
	return err
}
