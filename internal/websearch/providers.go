package websearch

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"strconv"
	"strings"
)

// provider is how one service is asked, by its public documentation.
type provider struct {
	name, base, key string // base is the vendor's address, key the usual name of its key; "" has none
	request         func(ctx context.Context, base, key, query string, most int) (*http.Request, error)
	results         func(body []byte) ([]Result, error)
}

var providers = []provider{
	{name: "brave", base: "https://api.search.brave.com", key: "BRAVE_API_KEY", request: braveRequest, results: braveResults},
	{name: "tavily", base: "https://api.tavily.com", key: "TAVILY_API_KEY", request: tavilyRequest, results: tavilyResults},
	{name: "exa", base: "https://api.exa.ai", key: "EXA_API_KEY", request: exaRequest, results: exaResults},
	{name: "searxng", request: searxngRequest, results: searxngResults},
}

func braveRequest(ctx context.Context, base, key, query string, most int) (*http.Request, error) {
	q := url.Values{"q": {query}, "count": {strconv.Itoa(most)}, "text_decorations": {"false"}}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, base+"/res/v1/web/search?"+q.Encode(), nil)
	if err == nil {
		req.Header.Set("X-Subscription-Token", key)
	}
	return req, err
}

func braveResults(body []byte) ([]Result, error) {
	var in struct {
		Web struct {
			Results []struct{ URL, Title, Description string }
		}
	}
	err := json.Unmarshal(body, &in)
	var out []Result
	for _, r := range in.Web.Results {
		out = append(out, Result{r.URL, r.Title, r.Description})
	}
	return out, err
}

func tavilyRequest(ctx context.Context, base, key, query string, most int) (*http.Request, error) {
	return post(ctx, base+"/search", map[string]any{"query": query, "max_results": most}, "Authorization", "Bearer "+key)
}

func tavilyResults(body []byte) ([]Result, error) {
	var in struct {
		Results []struct{ URL, Title, Content string }
	}
	err := json.Unmarshal(body, &in)
	var out []Result
	for _, r := range in.Results {
		out = append(out, Result{r.URL, r.Title, r.Content})
	}
	return out, err
}

func exaRequest(ctx context.Context, base, key, query string, most int) (*http.Request, error) {
	return post(ctx, base+"/search", map[string]any{"query": query, "numResults": most, "contents": map[string]any{"highlights": true}}, "x-api-key", key)
}

func exaResults(body []byte) ([]Result, error) {
	var in struct {
		Results []struct {
			URL, Title, Text string
			Highlights       []string
		}
	}
	err := json.Unmarshal(body, &in)
	var out []Result
	for _, r := range in.Results {
		excerpt := strings.Join(r.Highlights, " … ")
		if excerpt == "" {
			excerpt = r.Text
		}
		out = append(out, Result{r.URL, r.Title, excerpt})
	}
	return out, err
}

func searxngRequest(ctx context.Context, base, key, query string, _ int) (*http.Request, error) {
	q := url.Values{"q": {query}, "format": {"json"}}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, base+"/search?"+q.Encode(), nil)
	if err == nil && key != "" { // of a proxy before it, which the owner named
		req.Header.Set("Authorization", "Bearer "+key)
	}
	return req, err
}

// searxngResults reads what Tavily's answer has, too.
func searxngResults(body []byte) ([]Result, error) { return tavilyResults(body) }

func post(ctx context.Context, at string, body any, header, value string) (*http.Request, error) {
	b, err := json.Marshal(body)
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, at, bytes.NewReader(b))
	if err == nil {
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set(header, value)
	}
	return req, err
}
