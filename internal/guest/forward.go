package guest

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strconv"
	"strings"
	"time"

	"choir.dev/choiros/internal/fault"
)

// loopback is the transport to servers inside the box. It uses no proxy from the
// environment.
var loopback = &http.Transport{
	DialContext:         (&net.Dialer{Timeout: 5 * time.Second}).DialContext,
	DisableCompression:  true,
	MaxIdleConnsPerHost: 16,
	IdleConnTimeout:     30 * time.Second,
}

// forward passes /forward/{port}/rest on to 127.0.0.1:{port}/rest, WebSockets included. The
// Host header and the spelling of the path are passed unchanged.
func (g *server) forward(w http.ResponseWriter, r *http.Request) {
	number, rest, _ := strings.Cut(strings.TrimPrefix(r.URL.EscapedPath(), "/forward/"), "/")
	port, err := strconv.ParseUint(number, 10, 16)
	if err != nil || port == 0 {
		writeError(w, fault.New("guest.Forward", fault.Invalid, "", fmt.Errorf("%.20q is no port", number)))
		return
	}
	unescaped, err := url.PathUnescape(rest)
	if err != nil {
		writeError(w, fault.New("guest.Forward", fault.Invalid, "", err))
		return
	}
	proxy := httputil.ReverseProxy{
		Transport:     loopback,
		FlushInterval: -1,
		Rewrite: func(p *httputil.ProxyRequest) {
			p.Out.URL.Scheme, p.Out.URL.Host = "http", net.JoinHostPort("127.0.0.1", number)
			p.Out.URL.Path, p.Out.URL.RawPath = "/"+unescaped, "/"+rest
			p.Out.Host = p.In.Host
		},
		ErrorHandler: func(w http.ResponseWriter, r *http.Request, err error) {
			if r.Context().Err() != nil {
				panic(http.ErrAbortHandler)
			}
			writeError(w, fault.New("guest.Forward", fault.Unavailable, "", fmt.Errorf("nothing answers on port %d in the box: %w", port, err)))
		},
	}
	proxy.ServeHTTP(w, r)
}
