package reader

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"strings"
	"time"

	"choir.dev/choiros/internal/defence"
	"choir.dev/choiros/internal/webpage"
)

const (
	maxHops  = 5
	patience = 40 * time.Second // for one page, its redirects included
	agent    = "Mozilla/5.0 (compatible; choir-reader)"
	accepted = "text/markdown, text/html;q=0.9, application/xhtml+xml;q=0.9, text/plain;q=0.8, application/json;q=0.8, application/pdf;q=0.7, */*;q=0.1"
)

// Read fetches a page by the proxy and makes text of it. That it can't is in the answer's Failed.
func Read(ctx context.Context, r webpage.Request, proxy *url.URL) webpage.Page {
	return read(ctx, r, proxy, nil)
}

func read(ctx context.Context, r webpage.Request, proxy *url.URL, trust *tls.Config) webpage.Page {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	client := &http.Client{
		Transport: &http.Transport{
			Proxy: http.ProxyURL(proxy), TLSClientConfig: trust, MaxResponseHeaderBytes: 64 << 10, DisableKeepAlives: true,
			OnProxyConnectResponse: refused,
			TLSHandshakeTimeout:    15 * time.Second, ResponseHeaderTimeout: 30 * time.Second,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	at, err := webpage.Parse(r.URL)
	for range maxHops {
		if err != nil {
			return webpage.Page{Failed: err.Error()}
		}
		page, to := get(ctx, client, at)
		if to == "" {
			return page
		}
		next, bad := at.Refer(to)
		if bad != nil {
			return webpage.Page{Failed: "it redirects to an address that is not read"}
		}
		if next.Target() != at.Target() {
			return webpage.Page{Redirect: next.URL}
		}
		at = next
	}
	return webpage.Page{Failed: fmt.Sprintf("it redirects more than %d times", maxHops)}
}

// get makes one request. to is where a redirect leads.
func get(ctx context.Context, client *http.Client, at webpage.Address) (p webpage.Page, to string) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, at.URL, nil)
	if err != nil {
		return webpage.Page{Failed: err.Error()}, ""
	}
	req.Header.Set("User-Agent", agent)
	req.Header.Set("Accept", accepted)
	res, err := client.Do(req)
	if err != nil {
		return webpage.Page{Failed: reason(err)}, ""
	}
	defer res.Body.Close()
	if l := res.Header.Get("Location"); l != "" && res.StatusCode >= 300 && res.StatusCode < 400 {
		return p, l
	}
	most := int64(webpage.MaxBody)
	if defence.Off(defence.FetchSize) {
		most = 1 << 40
	}
	body, err := io.ReadAll(io.LimitReader(res.Body, most+1))
	if err != nil {
		return webpage.Page{Failed: "its content did not arrive: " + reason(err)}, ""
	}
	p = webpage.Page{From: at.URL, Status: res.StatusCode}
	if int64(len(body)) > most {
		body, p.Truncated = body[:most], true
	}
	p.Bytes = int64(len(body))
	p.Media = media(res.Header.Get("Content-Type"), body)
	offered, err := fill(&p, res.Header.Get("Content-Type"), body, at)
	if err != nil {
		return webpage.Page{Failed: err.Error()}, ""
	}
	transcribe(ctx, client, &p, at, offered)
	if len(p.Text) > webpage.MaxText {
		p.Text, p.Truncated = strings.ToValidUTF8(p.Text[:webpage.MaxText], ""), true
	}
	return p, ""
}

// refused is the error when the proxy opens no way, with what the proxy says.
func refused(_ context.Context, _ *url.URL, _ *http.Request, res *http.Response) error {
	if res.StatusCode == http.StatusOK {
		return nil
	}
	said, _ := io.ReadAll(io.LimitReader(res.Body, 1<<10)) // what there is of it
	return refusal(strings.TrimPrefix(strings.TrimSpace(string(said)), "choir: "))
}

// refusal is what the proxy says, which is the host's.
type refusal string

func (r refusal) Error() string { return string(r) }

// media is the media type that a server named; without one it is guessed.
func media(named string, body []byte) string {
	if t, _, err := mime.ParseMediaType(named); err == nil {
		return t
	}
	t, _, err := mime.ParseMediaType(http.DetectContentType(body))
	if err != nil {
		return "application/octet-stream"
	}
	return t
}

// fill makes the page's text of its body. offered are transcripts that it names.
func fill(p *webpage.Page, named string, body []byte, at webpage.Address) (offered []track, err error) {
	switch t := p.Media; {
	case t == "application/pdf" || bytes.HasPrefix(body, []byte("%PDF-")):
		if p.Truncated {
			return nil, fmt.Errorf("it is a PDF of more than %d MiB, which is not read", webpage.MaxBody>>20)
		}
		var more bool
		p.Title, p.Text, more, err = pdfText(body)
		p.Truncated = more
		return nil, err
	case t == "text/html" || t == "application/xhtml+xml":
		p.Title, p.Text, offered, err = markdown(body, named, at)
		return offered, err
	case subtitles(named, body, at) != "" && !p.Truncated:
		if p.Text, err = spoken(subtitles(named, body, at), body); err != nil { // then as it came
			p.Text, err = decoded(body, named)
		}
		return nil, err
	case strings.HasPrefix(t, "text/"), t == "application/json", strings.HasSuffix(t, "+json"), strings.HasSuffix(t, "+xml"),
		t == "application/xml", t == "application/javascript", t == "application/yaml", t == "application/x-ndjson":
		p.Text, err = decoded(body, named)
		return nil, err
	default:
		return nil, fmt.Errorf("it is %s, of which no text can be made", t)
	}
}
