package websearch_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/websearch"
)

// key is one that is seen wherever it is.
const key = "Zq9.search-canary.51c0"

// service plays a search service.
type service struct {
	status int
	body   string
	got    *http.Request
	sent   map[string]any
	header http.Header
}

func (s *service) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.got, s.sent = r, nil
	if b, err := io.ReadAll(r.Body); err == nil && len(b) > 0 {
		_ = json.Unmarshal(b, &s.sent) // what it is not, the test sees
	}
	for k, v := range s.header {
		w.Header()[k] = v
	}
	w.WriteHeader(s.status)
	_, _ = io.WriteString(w, s.body)
}

func open(t *testing.T, provider string, s *service) *websearch.Service {
	t.Helper()
	srv := httptest.NewServer(s)
	t.Cleanup(srv.Close)
	found, err := websearch.New(websearch.Options{Provider: provider, BaseURL: srv.URL + "/", Lookup: func(_ context.Context, name string) (string, error) {
		if !strings.HasSuffix(name, "_API_KEY") {
			return "", fmt.Errorf("asked for %s", name)
		}
		return key, nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// TestServices: each is asked in its own format, by its public documentation, and its answer is read.
func TestServices(t *testing.T) {
	for provider, c := range map[string]struct {
		answer string
		asked  func(s *service) bool
	}{
		"brave": {`{"type":"search","query":{"original":"cats"},"web":{"type":"search","results":[{"title":"Of cats","url":"https://a.example/cats","description":"small <b>animals</b>","age":"2 days","family_friendly":true},{"title":"x","url":"ftp://no.example/"}]}}`,
			func(s *service) bool {
				return s.got.Method == "GET" && s.got.URL.Path == "/res/v1/web/search" && s.got.URL.Query().Get("q") == "cats & dogs" && s.got.URL.Query().Get("count") == "3" && s.got.Header.Get("X-Subscription-Token") == key
			}},
		"tavily": {`{"query":"cats","follow_up_questions":null,"answer":null,"images":[],"results":[{"title":"Of cats","url":"https://a.example/cats","content":"small <b>animals</b>","score":0.98,"raw_content":null}],"response_time":1.2}`,
			func(s *service) bool {
				return s.got.Method == "POST" && s.got.URL.Path == "/search" && s.sent["query"] == "cats & dogs" && s.sent["max_results"] == 3.0 && s.got.Header.Get("Authorization") == "Bearer "+key
			}},
		"exa": {`{"requestId":"r","resolvedSearchType":"neural","results":[{"id":"https://a.example/cats","title":"Of cats","url":"https://a.example/cats","publishedDate":"2026-01-01","author":null,"highlights":["small <b>animals</b>"],"highlightScores":[0.4]}],"costDollars":{"total":0.005}}`,
			func(s *service) bool {
				return s.got.Method == "POST" && s.got.URL.Path == "/search" && s.sent["query"] == "cats & dogs" && s.sent["numResults"] == 3.0 && s.got.Header.Get("x-api-key") == key
			}},
		"searxng": {`{"query":"cats","number_of_results":0,"results":[{"url":"https://a.example/cats","title":"Of cats","content":"small <b>animals</b>","engine":"e","engines":["e"],"score":1.0,"category":"general"}],"answers":[],"suggestions":[],"unresponsive_engines":[]}`,
			func(s *service) bool {
				return s.got.Method == "GET" && s.got.URL.Path == "/search" && s.got.URL.Query().Get("q") == "cats & dogs" && s.got.URL.Query().Get("format") == "json" && s.got.Header.Get("Authorization") == ""
			}},
	} {
		s := &service{status: 200, body: c.answer}
		got, err := open(t, provider, s).Search(t.Context(), "cats & dogs", 3)
		if err != nil || len(got) != 1 || got[0] != (websearch.Result{URL: "https://a.example/cats", Title: "Of cats", Excerpt: "small <b>animals</b>"}) {
			t.Errorf("%s: %+v %v", provider, got, err)
		}
		if !c.asked(s) {
			t.Errorf("%s: asked %s %s %v with %v", provider, s.got.Method, s.got.URL, s.got.Header, s.sent)
		}
	}
}

// TestServicesThatFail: each way to fail has its code, in no error is the key, and a redirect is not followed.
func TestServicesThatFail(t *testing.T) {
	elsewhere := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		t.Errorf("a redirect is followed, with %v", r.Header)
	}))
	defer elsewhere.Close()
	for name, c := range map[string]struct {
		s    service
		code fault.Code
	}{
		"no key":     {service{status: 401, body: "bad key " + key}, fault.Denied},
		"forbidden":  {service{status: 403, body: `{"error":"` + key + `"}`}, fault.Denied},
		"too much":   {service{status: 429, body: "slow down"}, fault.Exhausted},
		"broken":     {service{status: 500, body: "oops " + key}, fault.Unavailable},
		"no JSON":    {service{status: 200, body: "<html>"}, fault.Unavailable},
		"never ends": {service{status: 200, body: strings.Repeat(" ", 5<<20)}, fault.Unavailable},
		"sends away": {service{status: 302, header: http.Header{"Location": {elsewhere.URL}}}, fault.Unavailable},
		"other JSON": {service{status: 200, body: `{"results":7,"web":7}`}, fault.Unavailable},
	} {
		for _, provider := range websearch.Providers() {
			_, err := open(t, provider, &c.s).Search(t.Context(), "cats", 3)
			if !fault.Is(err, c.code) {
				t.Errorf("%s, %s: %v", provider, name, err)
			}
			if provider != "searxng" && err != nil && strings.Contains(fault.Text(err)+err.Error(), key) {
				t.Errorf("an error has the key: %v", err)
			}
		}
	}
	none, err := websearch.New(websearch.Options{Provider: "brave", Lookup: func(context.Context, string) (string, error) { return "", nil }})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := none.Search(t.Context(), "cats", 3); !fault.Is(err, fault.Missing) || !strings.Contains(fault.HintOf(err), "choir secrets set BRAVE_API_KEY") {
		t.Errorf("without a key: %v", err)
	}
}

// TestWhatCantBeConfigured: the error names the key of the configuration.
func TestWhatCantBeConfigured(t *testing.T) {
	for word, o := range map[string]websearch.Options{"search.provider": {Provider: "altavista"}, "search.base_url": {Provider: "searxng"}} {
		if _, err := websearch.New(o); !fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), word) {
			t.Errorf("%+v: %v", o, err)
		}
	}
}
