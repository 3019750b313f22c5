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

// Serve serves ln until ctx ends; it closes ln, and waits for the requests under
// way, cutting off those that take long. shut ends what they wait for.
func Serve(ctx context.Context, ln net.Listener, handler http.Handler, log *slog.Logger, shut func()) error {
	srv := &http.Server{
		Handler:           handler,
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
		shut() // streams end at once; what else is under way may finish
	}
	drain, stop := context.WithTimeout(context.WithoutCancel(ctx), drainTime)
	defer stop()
	err := srv.Shutdown(drain)
	if errors.Is(err, context.DeadlineExceeded) {
		// Whoever takes that long, or holds a connection and asks nothing, is nobody
		// for whose sake the program ends with an error, or does not go on.
		log.Info("requests that took long were cut off")
		err = nil
	}
	err = errors.Join(err, srv.Close())
	if serveErr := <-done; !errors.Is(serveErr, http.ErrServerClosed) {
		err = errors.Join(err, serveErr)
	}
	return err
}

// headerLimit is how long a request's header may be.
func headerLimit() int {
	if defence.Off(defence.ControlCookies) {
		return maxHeader
	}
	return maxHeader + maxCookies + 64<<10 // and what is partitioned
}

// Limits of a server.
const (
	maxCookies    = 180 * 4 << 10 // what a browser keeps for one domain, bytes
	headerTimeout = 10 * time.Second
	maxHeader     = 32 << 10 // but for cookies
	drainTime     = 5 * time.Second
)
