package httpio

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"time"

	"choir.dev/choiros/internal/defence"
)

// Serve serves ln until ctx ends and then closes ln. It waits for the requests under way,
// and cuts off those that take longer than drainTime. shut, if not nil, is called first to
// end the streams.
func Serve(ctx context.Context, ln net.Listener, handler http.Handler, log *slog.Logger, shut func()) error {
	srv := &http.Server{
		Handler:           impatient(handler),
		ReadHeaderTimeout: headerTimeout,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    headerLimit(),
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}
	done := make(chan error, 1)
	go func() { done <- srv.Serve(ln) }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
	}
	if shut != nil {
		shut() // streams end at once; other requests may finish
	}
	drain, stop := context.WithTimeout(context.WithoutCancel(ctx), drainTime)
	defer stop()
	err := srv.Shutdown(drain)
	if errors.Is(err, context.DeadlineExceeded) {
		// A client that takes so long, or keeps an idle connection, is no reason to end
		// the program with an error or to keep it running.
		log.Info("requests that took long were cut off")
		err = nil
	}
	err = errors.Join(err, srv.Close())
	if serveErr := <-done; !errors.Is(serveErr, http.ErrServerClosed) {
		err = errors.Join(err, serveErr)
	}
	return err
}

// headerLimit returns how long a request's header may be.
func headerLimit() int {
	if defence.Off(defence.ControlCookies) {
		return maxHeader
	}
	return maxHeader + maxCookies + 64<<10 // and room for partitioned cookies
}

// Limits of a server.
const (
	maxCookies    = 180 * 4 << 10 // bytes of cookies that a browser keeps for one domain
	headerTimeout = 10 * time.Second
	maxHeader     = 32 << 10 // without cookies
	drainTime     = 5 * time.Second
)
