package otlp

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"golang.org/x/net/http/httpguts"
	"google.golang.org/protobuf/proto"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/view"
)

// Bounds of what a collector may take and say.
const (
	patience   = 10 * time.Second // for one request and its answer
	maxAnswer  = 64 << 10         // bytes that are read of an answer
	maxHeaders = 32
	maxAfter   = 5 * time.Minute // the longest that a collector may have us wait
)

// DefaultKey is the usual name of the headers, in the environment and the vault.
const DefaultKey = "OTEL_EXPORTER_OTLP_HEADERS"

// Options say where traces go.
type Options struct {
	Endpoint string // the collector's address, to which /v1/traces is added
	Version  string // ours
	Key      string // the name of the headers in the environment and the vault; "" is the usual one
	// Lookup returns a secret by its name, "" if there is none.
	Lookup func(ctx context.Context, name string) (string, error)
	// Patience bounds one request with its answer; 0: 10 s.
	Patience time.Duration
}

// Exporter sends traces to one collector. It keeps nothing, and is safe for concurrent use.
type Exporter struct {
	options Options
	url     string
	host    string
	client  *http.Client
}

// New makes an exporter and asks nothing.
func New(o Options) (*Exporter, error) {
	u, err := url.Parse(o.Endpoint)
	if err != nil || u.Host == "" {
		return nil, fault.New("otlp.New", fault.Invalid, "Write an address such as http://127.0.0.1:4318.", fmt.Errorf("tracing.endpoint is %q, which is no address", o.Endpoint))
	}
	if o.Key == "" {
		o.Key = DefaultKey
	}
	if o.Patience == 0 {
		o.Patience = patience
	}
	return &Exporter{options: o, url: strings.TrimRight(o.Endpoint, "/") + "/v1/traces", host: u.Host, client: &http.Client{
		Timeout: o.Patience,
		Transport: &http.Transport{
			Proxy: http.ProxyFromEnvironment, MaxResponseHeaderBytes: maxAnswer, IdleConnTimeout: time.Minute, MaxIdleConnsPerHost: 1, MaxConnsPerHost: 4,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }, // the headers go nowhere else
	}}, nil
}

// Host is the collector's, for people.
func (x *Exporter) Host() string { return x.host }

// AfterError is the error of a collector that says when to come again.
type AfterError struct {
	After time.Duration
	error
}

// Unwrap returns the cause.
func (e *AfterError) Unwrap() error { return e.error }

// Export sends the trace of a run that has ended. The error is fault.Invalid if the collector will not
// take this trace, whenever it is sent, and another one if it can't now.
func (x *Exporter) Export(ctx context.Context, cid contract.CID, t view.Trace) error {
	const op = "otlp.Export"
	m, err := message(cid, x.options.Version, t)
	if err != nil {
		return fault.New(op, fault.Invalid, "", err)
	}
	body, err := proto.Marshal(m)
	if err != nil {
		return fault.New(op, fault.Invalid, "", err)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, x.url, bytes.NewReader(body))
	if err != nil {
		return fault.New(op, fault.Unavailable, "Check tracing.endpoint.", errors.New("its address can't be used"))
	}
	if err := x.headers(ctx, req.Header); err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/x-protobuf")
	req.Header.Set("User-Agent", "choir/"+x.options.Version)
	res, err := x.client.Do(req)
	if err != nil {
		var u *url.Error
		if errors.As(err, &u) {
			err = u.Err // the address may hold what is not for the log
		}
		return fault.New(op, fault.Unavailable, "Check tracing.endpoint, and that the collector runs.", fmt.Errorf("the collector at %s can't be reached: %w", x.host, err))
	}
	defer res.Body.Close()
	_, _ = io.Copy(io.Discard, io.LimitReader(res.Body, maxAnswer)) // lets the connection be used again; what it says decides nothing
	return x.answered(res)
}

// answered says what a status means.
func (x *Exporter) answered(res *http.Response) error {
	const op = "otlp.Export"
	said := fmt.Errorf("the collector at %s answers %d", x.host, res.StatusCode)
	switch res.StatusCode {
	case http.StatusBadRequest, http.StatusRequestEntityTooLarge, http.StatusUnprocessableEntity:
		return fault.New(op, fault.Invalid, "The collector's own log says why.", said)
	case http.StatusUnauthorized, http.StatusForbidden:
		return fault.New(op, fault.Unavailable, "Set its headers with: choir secrets set "+x.options.Key, said)
	}
	if res.StatusCode/100 == 2 {
		return nil
	}
	err := fault.New(op, fault.Unavailable, "Check tracing.endpoint; it is the address before /v1/traces.", said)
	if s, bad := strconv.Atoi(res.Header.Get("Retry-After")); bad == nil && s > 0 {
		return &AfterError{min(time.Duration(min(s, int(maxAfter/time.Second)))*time.Second, maxAfter), err}
	}
	return err
}

// headers adds the configured headers: NAME=VALUE pairs with commas between them, percent-encoded, as
// OpenTelemetry writes them.
func (x *Exporter) headers(ctx context.Context, h http.Header) error {
	const op = "otlp.Export"
	if x.options.Lookup == nil {
		return nil
	}
	text, err := x.options.Lookup(ctx, x.options.Key)
	if err != nil {
		return fault.Wrap(op, err)
	}
	bad := func() error {
		return fault.New(op, fault.Unavailable, "Write NAME=VALUE, with commas between several, percent-encoded.", fmt.Errorf("%s holds no headers", x.options.Key))
	}
	n := 0
	for pair := range strings.SplitSeq(text, ",") {
		if pair = strings.TrimSpace(pair); pair == "" {
			continue
		}
		name, value, ok := strings.Cut(pair, "=")
		value, err := url.PathUnescape(strings.TrimSpace(value))
		name = strings.TrimSpace(name)
		if n++; !ok || err != nil || n > maxHeaders || !httpguts.ValidHeaderFieldName(name) || !httpguts.ValidHeaderFieldValue(value) {
			return bad()
		}
		h.Set(name, value)
	}
	return nil
}
