package client

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/rpc"
	"choir.dev/choiros/internal/view"
)

// Only stands for "the one computer there is".
const Only = "-"

// Client asks one control plane. It is safe for many goroutines.
type Client struct {
	base     string // origin without slash
	token    string
	computer string
	session  *http.Cookie // of a person who signed in, instead of a token
	http     *http.Client
}

// New makes a client of the control plane at base, such as
// http://console.choir.localhost:7700, with an API token. computer is a
// computer's id, or empty for the only one.
func New(base, token, computer string) (*Client, error) {
	const op = "client.New"
	u, err := url.Parse(base)
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" || strings.Trim(u.Path, "/") != "" || u.User != nil {
		return nil, fault.New(op, fault.Invalid, "Write it as http://console.choir.localhost:7700.", fmt.Errorf("%q is not the address of a control plane", base))
	}
	if computer == "" {
		computer = Only
	} else if err := contract.CID(computer).Validate(); err != nil && computer != Only {
		return nil, fault.New(op, fault.Invalid, "List them with choir computers, or on the console.", err)
	}
	dialer := &net.Dialer{Timeout: 5 * time.Second}
	t := &http.Transport{
		// Never through a proxy from the environment: it would get the token.
		Proxy: nil,
		DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
			host, port, err := net.SplitHostPort(addr)
			if err != nil {
				return nil, err
			}
			if name := strings.ToLower(host); name == "localhost" || strings.HasSuffix(name, ".localhost") {
				conn, err := dialer.DialContext(ctx, network, net.JoinHostPort("127.0.0.1", port))
				if err == nil {
					return conn, nil
				}
				conn, err6 := dialer.DialContext(ctx, network, net.JoinHostPort("::1", port))
				if err6 == nil {
					return conn, nil
				}
				return nil, err
			}
			return dialer.DialContext(ctx, network, addr)
		},
		MaxIdleConnsPerHost:   4,
		IdleConnTimeout:       30 * time.Second,
		TLSHandshakeTimeout:   10 * time.Second,
		ExpectContinueTimeout: time.Second,
	}
	return &Client{
		base: u.Scheme + "://" + u.Host, token: token, computer: computer,
		http: &http.Client{Transport: t, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }},
	}, nil
}

// Computer returns a client of the same control plane for another computer.
func (c *Client) Computer(cid contract.CID) *Client {
	d := *c
	d.computer = string(cid)
	return &d
}

// Base is the control plane's origin.
func (c *Client) Base() string { return c.base }

// Close drops idle connections.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// healthPath is the one address outside /api.
const healthPath = "/health"

// claimPath is where a sign-in link is posted.
const claimPath = "/claim"

// request describes one call.
type request struct {
	method  string
	path    string // below /api
	query   url.Values
	header  http.Header
	body    io.Reader
	content string // its type
}

// do sends a request and returns an answer of success; the caller closes it.
func (c *Client) do(ctx context.Context, r request) (*http.Response, error) {
	op := "client " + r.method + " " + r.path
	target := c.base + "/api" + r.path
	if r.path == healthPath {
		target = c.base + healthPath
	}
	if len(r.query) > 0 {
		target += "?" + r.query.Encode()
	}
	req, err := http.NewRequestWithContext(ctx, r.method, target, r.body)
	if err != nil {
		return nil, fault.New(op, fault.Invalid, "", err)
	}
	maps.Copy(req.Header, r.header)
	if r.content != "" {
		req.Header.Set("Content-Type", r.content)
	}
	switch {
	case c.token != "":
		req.Header.Set("Authorization", "Bearer "+c.token)
	case c.session != nil:
		req.AddCookie(&http.Cookie{Name: c.session.Name, Value: c.session.Value})
		fallthrough
	case r.path == claimPath:
		req.Header.Set("Origin", c.base) // a session's requests come from the console's own page
		req.Header.Set("Sec-Fetch-Site", "same-origin")
	}
	res, err := c.http.Do(req)
	if err != nil {
		return nil, fault.Wrap(op, transportError(ctx, c.base, err))
	}
	if res.StatusCode/100 != 2 {
		return nil, fault.Wrap(op, errors.Join(problemError(res), res.Body.Close()))
	}
	return res, nil
}

// transportError says why no answer came.
func transportError(ctx context.Context, base string, err error) error {
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	var ue *url.Error
	if errors.As(err, &ue) {
		err = ue.Err // without the URL, which is long and known
	}
	var oe *net.OpError
	if errors.As(err, &oe) && oe.Op == "dial" {
		return fault.New("", fault.Unreachable, "Start it with choir up, or set CHOIR_URL.", fmt.Errorf("no control plane answers at %s: %w", base, err))
	}
	return fault.New("", fault.Unreachable, "See whether choir up still runs, then try again.", fmt.Errorf("the connection to %s was lost: %w", base, err))
}

// Lost says of an error that the request was sent and no complete answer came, so that its
// outcome is unknown.
func Lost(err error) bool {
	var oe *net.OpError
	return fault.Is(err, fault.Unreachable) && !(errors.As(err, &oe) && oe.Op == "dial")
}

// Error is a refusal by the control plane.
type Error struct {
	Title string `json:"title"`
	view.Refusal
	status int
}

// NotSignedIn reports whether a call was refused because the token is not valid, whatever it was for.
func NotSignedIn(err error) bool {
	var e *Error
	return errors.As(err, &e) && e.status == http.StatusUnauthorized
}

func (e *Error) Error() string {
	if e.Detail != "" {
		return e.Detail
	}
	return e.Title
}

// Unwrap gives the field that is wrong, when one is, as a contract.FieldError.
func (e *Error) Unwrap() error {
	if e.Field == "" {
		return nil
	}
	return &contract.FieldError{Field: e.Field, Reason: e.Detail}
}

// problemError turns an error response into a coded error.
func problemError(res *http.Response) error {
	b, err := io.ReadAll(io.LimitReader(res.Body, 1<<20))
	if err != nil {
		return fault.New("", fault.Unreachable, "Try again.", err)
	}
	return decodeProblem(res.StatusCode, b)
}

func decodeProblem(status int, b []byte) error {
	e := &Error{}
	if err := rpc.Decode(bytes.NewReader(b), e); err != nil || e.Code == "" {
		return fault.New("", fault.Unreachable, "Check CHOIR_URL: what answers there is not a control plane of this version.",
			fmt.Errorf("unexpected answer %d", status))
	}
	e.status = status
	return fault.New("", fault.Code(e.Code), e.Hint, e)
}

// Send sends a call as it is and returns its answer, whatever its status; the caller closes it.
// content is the body's type.
func (c *Client) Send(ctx context.Context, call rpc.Request, body io.Reader, content string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, call.Verb, c.base+call.Path, body)
	if err != nil {
		return nil, fault.New("client.Send", fault.Invalid, "", err)
	}
	req.URL.RawQuery = call.Query.Encode()
	maps.Copy(req.Header, call.Header)
	if content != "" {
		req.Header.Set("Content-Type", content)
	}
	req.Header.Set("Authorization", "Bearer "+c.token)
	res, err := c.http.Do(req)
	if err != nil {
		return nil, fault.Wrap("client.Send", transportError(ctx, c.base, err))
	}
	return res, nil
}

// Named is how the client's requests name the computer.
func (c *Client) Named() string { return c.computer }

// Call calls a method of the client's computer.
func Call[In rpc.Asked, Out any](ctx context.Context, c *Client, m *rpc.Method[In, Out], in In) (out Out, err error) {
	op := "client " + m.Name
	call, err := m.Request(c.computer, in)
	if err != nil {
		return out, fault.New(op, fault.Invalid, "", err)
	}
	r := request{method: call.Verb, path: strings.TrimPrefix(call.Path, "/api"), query: call.Query, header: call.Header}
	if call.Body != nil {
		r.body, r.content = bytes.NewReader(call.Body), "application/json"
	}
	res, err := c.do(ctx, r)
	if err != nil {
		return out, err
	}
	defer func() { err = errors.Join(err, res.Body.Close()) }()
	if out, err = m.Read(res.Body, res.Header.Get("Choir-More") == "true"); err != nil {
		return out, fault.Wrap(op, transportError(ctx, c.base, err))
	}
	return out, nil
}
