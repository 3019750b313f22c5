package inward

import (
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"sync"
	"time"

	"choir.dev/choiros/contract"
)

// writeTime is how long the reader may take to accept one event.
const writeTime = 30 * time.Second

// events writes server-sent events. After the first failure it writes nothing more and cancels the
// call, because the reader has gone.
type events struct {
	w          http.ResponseWriter
	controller *http.ResponseController
	cancel     func()
	err        error
}

// open begins the answer.
func (e *events) open() {
	h := e.w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("Cache-Control", "no-cache")
	h.Set("X-Content-Type-Options", "nosniff")
	e.w.WriteHeader(http.StatusOK)
}

// send writes one event; without a name it has only data.
func (e *events) send(name string, v any) {
	b, err := json.Marshal(v)
	if err != nil { // the types of this package can always be encoded
		b = []byte(`{}`)
	}
	line := "data: " + string(b) + "\n\n"
	if name != "" {
		line = "event: " + name + "\n" + line
	}
	e.raw(line)
}

func (e *events) raw(s string) {
	if e.err != nil {
		return
	}
	// Not every connection supports deadlines; the box's end ends the answer as well.
	if err := e.controller.SetWriteDeadline(time.Now().Add(writeTime)); err != nil && !errors.Is(err, http.ErrNotSupported) {
		e.err = err
	} else if _, e.err = e.w.Write([]byte(s)); e.err == nil {
		if err := e.controller.Flush(); err != nil && !errors.Is(err, http.ErrNotSupported) {
			e.err = err
		}
	}
	if e.err != nil {
		e.cancel()
	}
}

// stream writes an answer while it arrives. Text is passed on at once. Calls and thoughts come at the
// end, because the gateway keeps them until it knows that they are whole and hold no key.
type stream struct {
	mu     sync.Mutex
	events *events
	enc    encoder
	begun  bool
	sent   strings.Builder // text
}

// begin begins the answer if it has not begun. Until then a failure has a status of its own.
func (s *stream) begin() {
	if !s.begun {
		s.begun = true
		s.events.open()
		s.enc.begin(s.events)
	}
}

func (s *stream) text(delta string) {
	if delta == "" {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.begin()
	s.sent.WriteString(delta)
	s.enc.text(s.events, delta)
}

// keepAlive says every so often that the call goes on, so that a program can tell a slow model from a
// lost connection. The function that it returns stops this and waits until it has stopped.
func (s *stream) keepAlive() (stop func()) {
	quit, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		t := time.NewTicker(keepAlive)
		defer t.Stop()
		for {
			select {
			case <-quit:
				return
			case <-t.C:
				s.mu.Lock()
				s.begin()
				s.enc.ping(s.events)
				s.mu.Unlock()
			}
		}
	}()
	return func() { close(quit); <-ended }
}

// end writes what has not been written of a turn. If none of its text has, its parts come in their own
// order.
func (s *stream) end(turn contract.Turn) {
	s.begin()
	var all strings.Builder
	for _, p := range turn.Message.Parts {
		all.WriteString(p.Text)
	}
	streamed := s.sent.Len() > 0
	if rest, ok := strings.CutPrefix(all.String(), s.sent.String()); streamed && ok && rest != "" {
		s.enc.text(s.events, rest)
	}
	for at, p := range turn.Message.Parts {
		switch {
		case p.Reasoning != nil:
			s.enc.thought(s.events, at, *p.Reasoning)
		case p.Call != nil:
			s.enc.call(s.events, *p.Call)
		case p.Text != "" && !streamed:
			s.enc.text(s.events, p.Text)
		}
	}
	s.enc.end(s.events, turn)
}
