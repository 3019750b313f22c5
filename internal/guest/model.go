package guest

import (
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"strings"
	"time"

	"choir.dev/choiros/internal/tether"
)

// modelConns bounds the connections to the box's model service. The host bounds what it answers by
// itself; this keeps the box's programs from using up the tether's streams.
const modelConns = 64

// startModel listens on the box's loopback for programs that use the model. It decides nothing: what
// is asked below /v1/ is passed to the host, which knows the box's token.
func startModel(session *tether.Session) (stop func(), err error) {
	ln, err := net.Listen("tcp", ModelAddr)
	if err != nil {
		return nil, fmt.Errorf("start the box's model service: %w", err)
	}
	to := &httputil.ReverseProxy{
		Transport: session.Transport(), FlushInterval: -1, ErrorLog: log.New(io.Discard, "", 0),
		Rewrite: func(p *httputil.ProxyRequest) {
			p.Out.URL.Scheme, p.Out.URL.Host, p.Out.Host = "http", "box", "box"
			p.Out.URL.Path, p.Out.URL.RawPath = "/model"+p.In.URL.Path, ""
		},
		ErrorHandler: func(w http.ResponseWriter, r *http.Request, err error) {
			if r.Context().Err() != nil {
				panic(http.ErrAbortHandler)
			}
			http.Error(w, "the host does not answer: "+err.Error(), http.StatusBadGateway)
		},
	}
	slots := make(chan struct{}, modelConns)
	server := &http.Server{
		ReadHeaderTimeout: proxyGreet, IdleTimeout: time.Minute, MaxHeaderBytes: proxyRequest, ErrorLog: to.ErrorLog,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if !strings.HasPrefix(r.URL.Path, "/v1/") {
				http.Error(w, "here are the addresses of model services, below /v1/", http.StatusNotFound)
				return
			}
			select {
			case slots <- struct{}{}:
				defer func() { <-slots }()
				to.ServeHTTP(w, r)
			default:
				w.Header().Set("Retry-After", "5")
				http.Error(w, "too many requests are open", http.StatusTooManyRequests)
			}
		}),
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = server.Serve(ln) // ends when it is closed
	}()
	return func() {
		_ = server.Close()
		<-ended
	}, nil
}
