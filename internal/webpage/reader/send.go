package reader

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"choir.dev/choiros/internal/defence"
	"choir.dev/choiros/internal/webpage"
)

// sayable is what of a service's answer is read, in bytes; what is kept of its text is less.
const sayable = 1 << 20

// Send sends a request by the proxy, one time, and tells what is known of it as soon as it is: that something may leave is told
// before it does. The error is that nobody listens.
func Send(ctx context.Context, s webpage.Sending, proxy *url.URL, tell func(webpage.Answer) error) error {
	return send(ctx, s, proxy, nil, tell)
}

func send(ctx context.Context, s webpage.Sending, proxy *url.URL, trust *tls.Config, tell func(webpage.Answer) error) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	s, at, err := s.Spell()
	if err != nil {
		return tell(webpage.Answer{Failed: err.Error(), Whole: true})
	}
	told := make(chan error, 1)
	var sent atomic.Bool
	// A connection is there, its TLS included, and nothing of the request is written.
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) {
		if sent.Swap(true) {
			return
		}
		err := tell(webpage.Answer{Sent: true})
		if told <- err; err != nil {
			cancel()
		}
	}})
	req, err := request(ctx, s)
	if err != nil {
		return tell(webpage.Answer{Failed: err.Error(), Whole: true})
	}
	a := webpage.Answer{}
	res, err := once(req, proxy, trust)
	if a.Sent = sent.Load(); a.Sent {
		if unheard := <-told; unheard != nil {
			return unheard
		}
	}
	if err != nil {
		a.Failed, a.Whole = "there is no answer: "+reason(err), true
		if !a.Sent {
			a.Failed = "nothing was sent: " + reason(err)
		}
		return tell(a)
	}
	defer res.Body.Close()
	a.Status, a.Location = res.StatusCode, webpage.Line(res.Header.Get("Location"), webpage.MaxHeaderValue)
	if err := tell(a); err != nil { // what follows parses what the service says, and may be made to break
		return err
	}
	answered(&a, res, at)
	a.Whole = true
	return tell(a)
}

// request makes a request of HTTP that can't be made twice: its body is there one time.
func request(ctx context.Context, s webpage.Sending) (*http.Request, error) {
	req, err := http.NewRequestWithContext(ctx, s.Method, s.URL, nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("User-Agent", agent)
	req.Header.Set("Accept", "application/json, text/*;q=0.9, */*;q=0.1")
	for _, h := range s.Fields() {
		req.Header.Set(h.Name, h.Value)
	}
	if s.Body != "" {
		req.Body, req.ContentLength = io.NopCloser(strings.NewReader(s.Body)), int64(len(s.Body))
	}
	return req, nil
}

// once makes one round trip over a connection of its own, which nobody used before and nobody will, so that there is none to
// try again over: with Idempotency-Key the library would. HTTP/2 has streams that a server may refuse, upon which the
// library opens another. Nothing follows a redirect.
func once(req *http.Request, proxy *url.URL, trust *tls.Config) (*http.Response, error) {
	transport := &http.Transport{
		Proxy: http.ProxyURL(proxy), TLSClientConfig: trust, MaxResponseHeaderBytes: 64 << 10, DisableKeepAlives: true,
		OnProxyConnectResponse: refused,
		TLSHandshakeTimeout:    15 * time.Second, ResponseHeaderTimeout: 30 * time.Second,
		Protocols: new(http.Protocols),
	}
	transport.Protocols.SetHTTP1(true)
	if defence.Off(defence.RequestOnce) {
		transport.Protocols.SetHTTP2(true)
		if req.Body != nil {
			body, _ := io.ReadAll(req.Body) // of a string
			req.Body, req.GetBody = io.NopCloser(strings.NewReader(string(body))), func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader(string(body))), nil }
		}
	}
	if defence.Off(defence.RequestRedirect) {
		return (&http.Client{Transport: transport}).Do(req)
	}
	return transport.RoundTrip(req)
}

// answered fills in what a service says.
func answered(a *webpage.Answer, res *http.Response, at webpage.Address) {
	body, err := io.ReadAll(io.LimitReader(res.Body, sayable+1))
	if err != nil {
		a.Failed = "not all of its answer arrived: " + reason(err)
	}
	if len(body) > sayable {
		body, a.Truncated = body[:sayable], true
	}
	a.Bytes, a.Media = int64(len(body)), media(res.Header.Get("Content-Type"), body)
	if len(body) == 0 {
		return
	}
	p := webpage.Page{Media: a.Media, Truncated: a.Truncated}
	if _, err := fill(&p, res.Header.Get("Content-Type"), body, at); err != nil {
		a.Failed = strings.TrimPrefix(fmt.Sprintf("%s; %v", a.Failed, err), "; ")
		return
	}
	if a.Text = p.Text; len(a.Text) > webpage.MaxAnswered {
		a.Text, a.Truncated = strings.ToValidUTF8(a.Text[:webpage.MaxAnswered], ""), true
	}
}
