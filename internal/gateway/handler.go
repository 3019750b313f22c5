package gateway

import (
	"bytes"
	"encoding/json"
	"errors"
	"net/http"
	"sync"
	"time"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/gateway/provider"
)

// writeTime is how long the reader may take to accept one line of an answer.
const writeTime = 30 * time.Second

// keepAliveTime is how often an empty line says that the call is still going on.
const keepAliveTime = 15 * time.Second

// brokeOff stands, in the text that is shown while it arrives, between an answer that broke off and the one
// that was asked for then. The turn holds only the second.
const brokeOff = "\n\n(The answer broke off here. The model is asked again.)\n\n"

// Handler serves POST /model/turns for one scope: the body is a request as package turnlines has it, and the
// answer is NDJSON of contract.TurnChunk that ends in exactly one turn or error. A malformed
// request is answered with HTTP 400 and one such error.
func (g *Gateway) Handler(scope Scope) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /model/turns", func(w http.ResponseWriter, r *http.Request) { g.serve(w, r, scope) })
	return mux
}

func (g *Gateway) serve(w http.ResponseWriter, r *http.Request, scope Scope) {
	out := &lines{w: w, controller: http.NewResponseController(w)}
	w.Header().Set("Content-Type", "application/x-ndjson")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	body := bytes.NewBuffer(make([]byte, 0, min(max(r.ContentLength, 0), 1<<20)+bytes.MinRead)) // of what is announced, a megabyte is believed
	if _, err := body.ReadFrom(http.MaxBytesReader(w, r.Body, contract.MaxTurn)); err != nil {
		var tooLarge *http.MaxBytesError
		if errors.As(err, &tooLarge) {
			w.WriteHeader(http.StatusRequestEntityTooLarge)
			out.write(contract.TurnChunk{Error: turnError(provider.CodeTooLarge, "the request is over 8 MiB", false)})
		}
		return // otherwise the caller has gone
	}
	req, err := g.said.decode(scope, body.Bytes())
	if err != nil {
		w.WriteHeader(http.StatusBadRequest)
		out.write(contract.TurnChunk{Error: turnError(provider.CodeInvalid, err.Error(), false)})
		return
	}
	stop := sync.OnceFunc(out.keepAlive())
	defer stop() // after a panic, too: nothing may be written to an answer whose request is over
	turn, _, err := g.answer(r.Context(), scope, req, reader{
		delta: func(delta string) { out.write(contract.TurnChunk{Delta: delta}) },
		again: func() { out.write(contract.TurnChunk{Delta: brokeOff}) },
	})
	stop()
	if err != nil {
		var te *contract.TurnError
		if !errors.As(err, &te) {
			te = turnError(provider.CodeUnavailable, "the turn failed", true)
		}
		out.write(contract.TurnChunk{Error: te})
		return
	}
	out.write(contract.TurnChunk{Turn: &turn})
}

// lines writes NDJSON. After the first failure it writes nothing more, because the reader has gone,
// which also cancels the request's context and thereby the call.
type lines struct {
	mu         sync.Mutex
	w          http.ResponseWriter
	controller *http.ResponseController
	err        error
}

// keepAlive writes an empty line every keepAliveTime, so that the reader can tell a slow model from a lost
// connection. The function that it returns stops this and waits until it has stopped.
func (l *lines) keepAlive() (stop func()) {
	quit, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		t := time.NewTicker(keepAliveTime)
		defer t.Stop()
		for {
			select {
			case <-quit:
				return
			case <-t.C:
				l.line(nil)
			}
		}
	}()
	return func() { close(quit); <-ended }
}

func (l *lines) write(c contract.TurnChunk) {
	b, err := json.Marshal(c)
	if err != nil { // the gateway's own types can always be encoded
		b, _ = json.Marshal(contract.TurnChunk{Error: turnError(provider.CodeUnavailable, "the turn could not be encoded", false)})
	}
	l.line(b)
}

func (l *lines) line(b []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err != nil {
		return
	}
	// Not every connection supports deadlines; the call's own limit holds for it as well.
	if err := l.controller.SetWriteDeadline(time.Now().Add(writeTime)); err != nil && !errors.Is(err, http.ErrNotSupported) {
		l.err = err
		return
	}
	if _, l.err = l.w.Write(append(b, '\n')); l.err != nil {
		return
	}
	if err := l.controller.Flush(); err != nil && !errors.Is(err, http.ErrNotSupported) {
		l.err = err
	}
}
