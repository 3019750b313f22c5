package loops

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/awake"
	"choir.dev/choiros/internal/dispatch/ports"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/harness"
)

// ErrGone is the error of requests that come after their attempt has ended.
var ErrGone = errors.New("this attempt has ended")

// ErrOutside is the error of a loop that reports that it was cancelled although nobody cancelled it: its
// process was ended by something else, and it is continued as after a crash.
var ErrOutside = errors.New("the loop was ended from outside")

// MaxOpenings is how often the box of a Director or a check that crashes is opened.
const MaxOpenings = 3

func readJSON(w http.ResponseWriter, r *http.Request, max int64, v any) error {
	b, err := io.ReadAll(http.MaxBytesReader(w, r.Body, max))
	if err != nil {
		return err
	}
	return contract.DecodeStrict(b, int(max), v)
}

// Refuse answers with a harness.Refusal, in the words that people get. With status 0 the error determines the
// status.
func Refuse(w http.ResponseWriter, status int, err error) {
	no := harness.Refusal{Reason: harness.Clip(fault.Told(err), 2000)}
	if fe := contract.AsFieldError(err); fe != nil {
		no.Field, no.Reason = fe.Field, fe.Reason
	}
	if status == 0 {
		switch {
		case errors.Is(err, ErrGone):
			status = http.StatusGone
		case fault.Is(err, fault.Invalid), fault.Is(err, fault.NotFound), contract.AsFieldError(err) != nil:
			status = http.StatusBadRequest
		case fault.Is(err, fault.Denied):
			status = http.StatusForbidden
		case fault.Is(err, fault.Conflict), fault.Is(err, fault.Exhausted):
			status = http.StatusConflict
		default:
			status = http.StatusInternalServerError
		}
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(no) // the loop is gone if this fails
}

// maxLine bounds one line of a loop's answer, in bytes.
const maxLine = 1 << 20

// Converse starts a loop in its box and reads the loop's lines until its end. It also ends
// when the loop is silent for too long, the box ends, or over returns an error.
func Converse[T any](ctx context.Context, box ports.Box, silence time.Duration, path string, message any, over func() error) (end T, err error) {
	body, err := json.Marshal(message)
	if err != nil {
		return end, err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	var watch sync.WaitGroup
	defer watch.Wait()
	defer cancel(nil)
	watch.Go(func() {
		select {
		case <-box.Done():
			why := box.Err()
			if why == nil {
				why = errors.New("it ended")
			}
			cancel(fault.New("dispatch", fault.Unavailable, "", fmt.Errorf("box %s: %w", box.ID(), why)))
		case <-ctx.Done():
		}
	})
	watchdog := awake.AfterFunc(silence, func() {
		cancel(fault.New("dispatch", fault.Timeout, "", Silent(box, silence)))
	})
	defer watchdog.Stop()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://box"+path, bytes.NewReader(body))
	if err != nil {
		return end, err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := box.Transport().RoundTrip(req)
	if err != nil {
		return end, Because(ctx, err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		b, rerr := io.ReadAll(io.LimitReader(resp.Body, 4096))
		return end, fault.New("dispatch", fault.Internal, "", errors.Join(fmt.Errorf("box %s answered %s: %s", box.ID(), resp.Status, b), rerr))
	}
	sc := bufio.NewScanner(resp.Body)
	sc.Buffer(make([]byte, 0, 4096), maxLine)
	for sc.Scan() {
		watchdog.Reset(silence)
		var l harness.Line[T]
		if err := contract.DecodeStrict(sc.Bytes(), maxLine, &l); err != nil {
			return end, fault.New("dispatch", fault.Invalid, "", fmt.Errorf("box %s: %w", box.ID(), err))
		}
		if l.End != nil {
			return *l.End, nil
		}
		if err := over(); err != nil {
			return end, err
		}
	}
	if err := sc.Err(); err != nil {
		return end, Because(ctx, err)
	}
	return end, Because(ctx, fault.New("dispatch", fault.Unavailable, "", fmt.Errorf("box %s ended without an answer", box.ID())))
}

// Because returns why a conversation ended: the cause of its context if that has ended,
// else err.
func Because(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return fault.New("dispatch", fault.Unavailable, "", err)
}

// SilentError is the error of a box that does not answer although it has not ended: its
// processes were stopped, or hang.
type SilentError struct {
	box string
	For time.Duration
}

// Silent returns the error of a box that was silent for some time.
func Silent(box ports.Box, d time.Duration) error { return &SilentError{box.ID(), d} }

func (e *SilentError) Error() string {
	return fmt.Sprintf("box %s gave no sign of life for %s", e.box, e.For)
}

// Alive reports whether a box's guest answers at all within a time.
func Alive(ctx context.Context, box ports.Box, within time.Duration) bool {
	ctx, cancel := awake.WithTimeout(ctx, within)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://box/health", nil)
	if err != nil {
		return true
	}
	resp, err := box.Transport().RoundTrip(req)
	if err != nil {
		return ctx.Err() == nil // the box has ended, which is noticed elsewhere
	}
	_ = resp.Body.Close()
	return true
}

// Answering asks the box for a sign of life from time to time until the returned function is called. A
// box that gives none is killed, by kill, and the returned context is cancelled; otherwise a box that hangs would
// be waited for until the budget is used up.
func Answering(ctx context.Context, box ports.Box, silence time.Duration, kill func()) (_ context.Context, stop func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for awake.Pause(ctx, silence/4) {
			if Alive(ctx, box, silence) || ctx.Err() != nil {
				continue
			}
			cancel(fault.New("dispatch", fault.Timeout, "", Silent(box, silence)))
			kill()
		}
	}()
	return ctx, func() { cancel(nil); <-ended }
}

// Endpoint makes a JSON endpoint for a loop: it answers with 200 and f's result, or with a
// refusal.
func Endpoint[In any](max int64, f func(ctx context.Context, r *http.Request, in In) (any, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, req *http.Request) {
		var in In
		if err := readJSON(w, req, max, &in); err != nil {
			Refuse(w, http.StatusBadRequest, err)
			return
		}
		out, err := f(req.Context(), req, in)
		if err != nil {
			Refuse(w, 0, err)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(out) // the loop is gone if this fails
	}
}

// textTee passes NDJSON of contract.TurnChunk on and calls show with the text in it.
type textTee struct {
	http.ResponseWriter
	line []byte
	show func(text string)
}

// TeeText returns a writer to w that calls show with each piece of the model's text.
func TeeText(w http.ResponseWriter, show func(text string)) http.ResponseWriter {
	return &textTee{ResponseWriter: w, show: show}
}

// maxTeed bounds the lines that are parsed; a longer line holds a whole turn, not a piece
// of text.
const maxTeed = 64 << 10

// Unwrap lets an http.ResponseController flush and set deadlines.
func (t *textTee) Unwrap() http.ResponseWriter { return t.ResponseWriter }

func (t *textTee) Write(p []byte) (int, error) {
	n, err := t.ResponseWriter.Write(p)
	for rest := p[:n]; len(rest) > 0; {
		part, after, whole := bytes.Cut(rest, []byte("\n"))
		if len(t.line) <= maxTeed {
			t.line = append(t.line, part[:min(len(part), maxTeed+1)]...)
		}
		if !whole {
			break
		}
		var c contract.TurnChunk
		if len(t.line) <= maxTeed && json.Unmarshal(t.line, &c) == nil && c.Delta != "" {
			t.show(c.Delta)
		}
		t.line, rest = t.line[:0], after
	}
	return n, err
}
