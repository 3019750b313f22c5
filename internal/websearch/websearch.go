package websearch

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"choir.dev/choiros/internal/defence"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/redact"
	"choir.dev/choiros/internal/webpage"
)

// Bounds of a search.
const (
	MaxQuery   = 400 // characters, which is what the strictest of the services takes
	MaxResults = 20
	maxTitle   = 200     // characters
	maxExcerpt = 600     // characters
	maxAnswer  = 4 << 20 // bytes
	patience   = 20 * time.Second
)

// Result is a page that a service named. URL is its address in the spelling of webpage.Parse.
type Result struct{ URL, Title, Excerpt string }

// Options say which service is asked.
type Options struct {
	Provider string // a name of Providers
	BaseURL  string // "" is the vendor's own
	Key      string // the name of its key; "" is the usual one
	// Lookup returns a key by its name, "" if there is none.
	Lookup func(ctx context.Context, name string) (string, error)
	// Client is http.Client's; nil is one with bounds.
	Client *http.Client
}

// Service asks one search service. It is safe for concurrent use.
type Service struct {
	provider provider
	base     string
	keyName  string
	lookup   func(ctx context.Context, name string) (string, error)
	client   *http.Client
}

// Providers lists the names of the services that can be asked.
func Providers() []string {
	var out []string
	for _, p := range providers {
		out = append(out, p.name)
	}
	return out
}

// New checks the options and asks nothing. The error is fault.Invalid and names the key of the configuration.
func New(o Options) (*Service, error) {
	const op = "websearch.New"
	at := slices.IndexFunc(providers, func(p provider) bool { return p.name == o.Provider })
	if at < 0 {
		return nil, fault.New(op, fault.Invalid, "Write one of: "+strings.Join(Providers(), ", ")+".", fmt.Errorf("search.provider: is %q, which is no search service that is known", o.Provider))
	}
	s := &Service{provider: providers[at], base: o.BaseURL, keyName: o.Key, lookup: o.Lookup, client: o.Client}
	if s.base == "" {
		s.base = s.provider.base
	}
	if s.base == "" {
		return nil, fault.New(op, fault.Invalid, "Write the address of your own instance.", fmt.Errorf("search.base_url: is missing; %s has no address of its own", s.provider.name))
	}
	if s.keyName == "" {
		s.keyName = s.provider.key
	}
	if s.client == nil {
		s.client = &http.Client{Transport: &http.Transport{
			Proxy: http.ProxyFromEnvironment, TLSHandshakeTimeout: 10 * time.Second, MaxResponseHeaderBytes: 64 << 10,
			IdleConnTimeout: time.Minute, MaxIdleConnsPerHost: 2,
		}}
	}
	client := *s.client
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse } // a key goes nowhere else
	s.client = &client
	return s, nil
}

// Provider is the service's name.
func (s *Service) Provider() string { return s.provider.name }

// Search returns up to most pages for a query, the service's first ones. Errors are fault.Missing without a
// key, fault.Denied if the service refuses the key, fault.Exhausted if it has been asked too much,
// fault.Unavailable otherwise.
func (s *Service) Search(ctx context.Context, query string, most int) ([]Result, error) {
	const op = "websearch.Search"
	most = max(1, min(most, MaxResults))
	key := ""
	if s.keyName != "" {
		var err error
		if key, err = s.lookup(ctx, s.keyName); err != nil {
			return nil, fault.Wrap(op, err)
		}
		if key == "" {
			return nil, fault.New(op, fault.Missing, "Set it with: choir secrets set "+s.keyName, fmt.Errorf("there is no key for the search service %s", s.provider.name))
		}
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	req, err := s.provider.request(ctx, strings.TrimRight(s.base, "/"), key, query, most)
	if err != nil {
		return nil, fault.New(op, fault.Invalid, "", err)
	}
	req.Header.Set("Accept", "application/json")
	body, err := s.ask(req)
	if err != nil {
		return nil, hide(fault.Wrap(op, err), key)
	}
	found, err := s.provider.results(body)
	if err != nil {
		return nil, fault.New(op, fault.Unavailable, "Check search.base_url.", fmt.Errorf("what %s answers can't be read", s.provider.name))
	}
	return plain(found, most), nil
}

// ask makes the request and reads the answer.
func (s *Service) ask(req *http.Request) ([]byte, error) {
	res, err := s.client.Do(req)
	if err != nil {
		var u *url.Error
		if errors.As(err, &u) {
			err = u.Err // the address has the query
		}
		return nil, fault.New("", fault.Unavailable, "", fmt.Errorf("%s can't be reached: %w", s.provider.name, err))
	}
	defer res.Body.Close()
	body, err := io.ReadAll(io.LimitReader(res.Body, maxAnswer+1))
	switch {
	case err != nil:
		return nil, fault.New("", fault.Unavailable, "", fmt.Errorf("what %s answers did not arrive: %w", s.provider.name, err))
	case res.StatusCode == http.StatusUnauthorized || res.StatusCode == http.StatusForbidden:
		return nil, fault.New("", fault.Denied, s.deniedHint(), fmt.Errorf("%s refuses: %s", s.provider.name, said(res.StatusCode, body)))
	case res.StatusCode == http.StatusTooManyRequests || res.StatusCode == http.StatusPaymentRequired:
		return nil, fault.New("", fault.Exhausted, "Try again later, or raise the limit with the service.", fmt.Errorf("%s has been asked too much: %s", s.provider.name, said(res.StatusCode, body)))
	case res.StatusCode != http.StatusOK:
		return nil, fault.New("", fault.Unavailable, "", fmt.Errorf("%s answers %s", s.provider.name, said(res.StatusCode, body)))
	case len(body) > maxAnswer:
		return nil, fault.New("", fault.Unavailable, "", fmt.Errorf("%s answers more than %d MiB", s.provider.name, maxAnswer>>20))
	}
	return body, nil
}

func (s *Service) deniedHint() string {
	if s.keyName == "" {
		return "Let your instance answer in JSON (search.formats in its settings)."
	}
	return "Set the key anew with: choir secrets set " + s.keyName
}

// said is what an answer that is no result says.
func said(status int, body []byte) string {
	return strings.TrimSpace(fmt.Sprintf("%d %s", status, webpage.Line(string(body[:min(len(body), 2000)]), 200)))
}

// hide removes a key from what an error says, in every spelling.
func hide(err error, key string) error {
	if key == "" || defence.Off(defence.SearchKey) {
		return err
	}
	text := err.Error()
	shown := text
	for _, spelling := range redact.Spellings(key) {
		shown = strings.ReplaceAll(shown, spelling, redact.Mark)
	}
	if shown == text {
		return err
	}
	return fault.New("websearch.Search", fault.CodeOf(err), fault.HintOf(err), errors.New(shown))
}

// plain keeps what is a page's address, and makes plain text of what is said of it.
func plain(found []Result, most int) []Result {
	var out []Result
	for _, f := range found {
		a, err := webpage.Parse(f.URL)
		if err != nil || len(out) == most {
			continue
		}
		out = append(out, Result{URL: a.URL, Title: webpage.Line(f.Title, maxTitle), Excerpt: webpage.Line(f.Excerpt, maxExcerpt)})
	}
	return out
}
