package mcpservers

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/mcpclient"
)

// startElsewhere connects to a server at an address, through the proxy that boxes go out by: what it decides is
// recorded, and no address of the machine or its network is reached. Nothing but the address is.
func (s *Servers) startElsewhere(ctx context.Context, p contract.MCPAdded, l *live, bearer string, way http.Handler) error {
	pipes := &pipes{conns: make(chan net.Conn), done: make(chan struct{})}
	proxy := &http.Server{Handler: way, ReadHeaderTimeout: 10 * time.Second}
	through := &http.Transport{
		Proxy: http.ProxyURL(&url.URL{Scheme: "http", Host: "egress"}), DialContext: pipes.dial,
		TLSHandshakeTimeout: 10 * time.Second, MaxResponseHeaderBytes: 64 << 10, IdleConnTimeout: time.Minute, MaxConnsPerHost: 8,
		OnProxyConnectResponse: func(_ context.Context, _ *url.URL, _ *http.Request, r *http.Response) error {
			if r.StatusCode == http.StatusOK {
				return nil
			}
			why, _ := io.ReadAll(io.LimitReader(r.Body, 500)) // what is missing of the reason is missing
			return errors.New(strings.TrimSpace(string(why)))
		},
	}
	settled := make(chan struct{}) // whether there is a connection
	if !s.living.run(func() {
		defer close(l.over)
		var serving sync.WaitGroup
		serving.Go(func() { _ = proxy.Serve(pipes) }) // it ends with the pipes
		<-l.life.Done()
		<-settled
		if l.Server != nil {
			_ = l.Close() // the server may be gone
		}
		through.CloseIdleConnections()
		_ = pipes.Close()
		_ = proxy.Close()
		serving.Wait()
	}) {
		return fault.New("", fault.Unavailable, "", errAsleep)
	}
	within, stop := l.within(ctx)
	server, err := mcpclient.Reach(within, p.Server, s.options.Version, p.URL, bearer, through)
	stop()
	l.Server = server // nil if there is none
	close(settled)
	if err != nil {
		l.end()
		<-l.over
		return fault.New("", fault.CodeOf(err), fault.HintOf(err), fmt.Errorf("%s", l.without(fault.Text(err))))
	}
	s.living.run(func() { server.Wait(); l.end() }) // else everything ends anyway
	return nil
}

// pipes is a listener within the process.
type pipes struct {
	conns chan net.Conn
	done  chan struct{}
	once  sync.Once
}

func (p *pipes) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	here, there := net.Pipe()
	select {
	case p.conns <- there:
		return here, nil
	case <-ctx.Done():
		return nil, errors.Join(context.Cause(ctx), here.Close())
	case <-p.done:
		return nil, errors.Join(net.ErrClosed, here.Close())
	}
}

// Accept implements net.Listener.
func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.done:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (p *pipes) Close() error {
	p.once.Do(func() { close(p.done) })
	return nil
}

// Addr implements net.Listener.
func (p *pipes) Addr() net.Addr { return &net.UnixAddr{Name: "egress", Net: "unix"} }
