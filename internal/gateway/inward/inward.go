package inward

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/defence"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/gateway"
	"choir.dev/choiros/internal/gateway/provider"
)

// Bounds of one box's requests.
const (
	maxBody     = 8 << 20
	maxMessages = 2000
	maxTools    = 100
	maxWaiting  = 64               // requests of one box that are under way or wait for their turn
	maxPictures = 100              // in one request
	maxStored   = 64 << 20         // bytes of different pictures that a box may have kept
	parallel    = 4                // calls of one box at a time
	turnWait    = time.Minute      // for which a request waits for its turn
	bodyTime    = time.Minute      // in which a request has to have arrived
	keepAlive   = 15 * time.Second // after so long without an event a stream says that it goes on
	retryAfter  = "5"              // seconds, in answers that ask for patience
	mayFail     = 8                // calls in a row before further ones are made later
	failedPause = 250 * time.Millisecond
	maxPause    = 5 * time.Second
)

// Turner answers turns; it is the gateway.
type Turner interface {
	Turn(ctx context.Context, scope gateway.Scope, req contract.TurnRequest, onDelta func(string)) (contract.Turn, error)
}

// Options says what a box's programs may use.
type Options struct {
	Turner Turner
	// Scope says for whom calls are made. Its Model and its budgets count, whatever a request says.
	Scope gateway.Scope
	// Token is what a request has to carry, as x-api-key or as a bearer token.
	Token string
	// Model returns provider and name of the model that answers. Its error is shown.
	Model func(ctx context.Context) (provider, name string, err error)
	// Admit returns why no call may be made now: fault.Unavailable if one may later. nil: one always may.
	Admit func(ctx context.Context) error
	// Keep keeps a picture, so that the gateway can show it; nil: pictures are refused.
	Keep func(ctx context.Context, r io.Reader) (contract.BlobRef, int64, error)
}

// server answers the programs of one box.
type server struct {
	Options
	token    [sha256.Size]byte
	turns    chan struct{} // holds a value for each call under way
	requests atomic.Int64

	mu     sync.Mutex
	stored map[contract.BlobRef]bool
	size   int64     // of what is stored
	failed int       // calls in a row
	next   time.Time // before which no call is made, if so many failed
}

// Handler serves POST /v1/messages, /v1/messages/count_tokens, /v1/chat/completions and
// /v1/responses, and GET /v1/models, for the programs of one box. It panics without a Turner, a Model
// and a Token, which only a mistake in wiring leaves out.
func Handler(o Options) http.Handler {
	if o.Turner == nil || o.Model == nil || o.Token == "" {
		panic("inward.Handler: Turner, Model and Token are required")
	}
	s := &server{Options: o, token: sha256.Sum256([]byte(o.Token)), turns: make(chan struct{}, parallel), stored: map[contract.BlobRef]bool{}}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/messages", func(w http.ResponseWriter, r *http.Request) { s.answer(w, r, messages{}) })
	mux.HandleFunc("POST /v1/messages/count_tokens", s.count)
	mux.HandleFunc("POST /v1/chat/completions", func(w http.ResponseWriter, r *http.Request) { s.answer(w, r, completions{}) })
	mux.HandleFunc("POST /v1/responses", func(w http.ResponseWriter, r *http.Request) { s.answer(w, r, responses{}) })
	mux.HandleFunc("GET /v1/models", s.models)
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		fail(w, formatOf(r), &contract.TurnError{Code: codeNoAddress, Message: "here are POST /v1/messages, /v1/messages/count_tokens, /v1/chat/completions and /v1/responses, and GET /v1/models"})
	})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !s.knows(r) {
			fail(w, formatOf(r), &contract.TurnError{Code: codeToken, Message: "this is not the token of this box: use the one in the box's ANTHROPIC_API_KEY and OPENAI_API_KEY"})
			return
		}
		if s.requests.Add(1) > maxWaiting {
			s.requests.Add(-1)
			fail(w, formatOf(r), &contract.TurnError{Code: provider.CodeRateLimited, Message: "this box has too many requests open", Retriable: true})
			return
		}
		defer s.requests.Add(-1)
		mux.ServeHTTP(w, r)
	})
}

// knows reports whether a request carries the box's token. Sums are compared, so that the time tells
// nothing of the token's length either.
func (s *server) knows(r *http.Request) bool {
	if defence.Off(defence.InwardToken) {
		return true
	}
	bearer := ""
	if scheme, rest, ok := strings.Cut(r.Header.Get("Authorization"), " "); ok && strings.EqualFold(scheme, "bearer") {
		bearer = strings.TrimSpace(rest)
	}
	known := 0
	for _, given := range []string{r.Header.Get("X-Api-Key"), bearer} {
		sum := sha256.Sum256([]byte(given))
		known |= subtle.ConstantTimeCompare(sum[:], s.token[:])
	}
	return known == 1
}

// formatOf returns the format in which a request's refusal is written when its address says nothing
// else.
func formatOf(r *http.Request) format {
	if strings.HasPrefix(r.URL.Path, "/v1/messages") || r.Header.Get("Anthropic-Version") != "" {
		return messages{}
	}
	return completions{}
}

// asked is a request, and what it asks of the answer that a contract's request has no place for.
type asked struct {
	request contract.TurnRequest
	stream  bool
	usage   bool   // a stream ends with what was used (chat completions)
	must    bool   // the answer has to call a tool
	only    string // and this one, if it is not empty
	never   bool   // the answer calls none
	single  bool   // the answer has at most one call
}

// format is the wire format of a vendor.
type format interface {
	decode(in *input, body []byte) (asked, error)
	problem(te *contract.TurnError) any
	encoder(model string, a asked) encoder
}

// encoder writes one answer. Either whole is called, or begin, then the others in the order in which
// the answer arrives, then end or fail.
type encoder interface {
	whole(turn contract.Turn, name string) any
	begin(e *events)
	ping(e *events)
	text(e *events, delta string)
	thought(e *events, at int, r contract.Reasoning)
	call(e *events, c contract.ToolCall)
	end(e *events, turn contract.Turn)
	fail(e *events, te *contract.TurnError)
}

// answer carries out one request for a turn.
func (s *server) answer(w http.ResponseWriter, r *http.Request, f format) {
	// The request's body is read after a turn was taken, so that a box can't have the host hold more
	// than that many.
	release, err := s.take(r.Context())
	if err != nil {
		fail(w, f, turnError(err))
		return
	}
	defer release()
	if s.Admit != nil {
		if err := s.Admit(r.Context()); err != nil {
			fail(w, f, turnError(err))
			return
		}
	}
	a, ok := s.read(w, r, f, false)
	if !ok {
		return
	}
	vendor, name, err := s.Model(r.Context())
	if err != nil {
		fail(w, f, noModel(err))
		return
	}
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	enc := f.encoder(vendor+"/"+name, a)
	if !a.stream {
		turn, err := s.turn(ctx, a.request, nil)
		if err == nil {
			err = a.finish(&turn)
		}
		if err != nil {
			fail(w, f, turnError(err))
			return
		}
		writeJSON(w, http.StatusOK, enc.whole(turn, turn.Provider+"/"+turn.Model))
		return
	}
	st := &stream{events: &events{w: w, controller: http.NewResponseController(w), cancel: cancel}, enc: enc}
	stop := sync.OnceFunc(st.keepAlive())
	defer stop() // after a panic, too: nothing may be written to an answer whose request is over
	onDelta := st.text
	if a.request.Output != nil {
		onDelta = nil // the gateway may take the document out of what the model wrote around it
	}
	turn, err := s.turn(ctx, a.request, onDelta)
	stop()
	if err == nil {
		err = a.finish(&turn)
	}
	switch {
	case err == nil:
		st.end(turn)
	case !st.begun:
		fail(w, f, turnError(err))
	default:
		enc.fail(st.events, turnError(err))
	}
}

// turn asks the gateway. A call that fails costs nothing, yet it reaches a service and the log; who makes such calls
// again and again may make them less and less often.
func (s *server) turn(ctx context.Context, req contract.TurnRequest, onDelta func(string)) (contract.Turn, error) {
	if d := s.pause(); d > 0 {
		timer := time.NewTimer(d)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
			return contract.Turn{}, ctx.Err()
		}
	}
	turn, err := s.Turner.Turn(ctx, s.Scope, req, onDelta)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.failed++; err == nil {
		s.failed, s.next = 0, time.Time{}
	}
	return turn, err
}

// pause is how long the next call has to wait because of those that failed, one behind the other.
func (s *server) pause() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.failed - mayFail
	if n < 0 {
		return 0
	}
	now := time.Now()
	if s.next.Before(now) {
		s.next = now
	}
	s.next = s.next.Add(min(time.Duration(n+1)*failedPause, maxPause))
	if latest := now.Add(2 * maxPause); s.next.After(latest) {
		s.next = latest // who left meanwhile keeps nobody waiting for ever
	}
	return s.next.Sub(now)
}

// take waits for one of the box's turns.
func (s *server) take(ctx context.Context) (release func(), err error) {
	if defence.Off(defence.InwardParallel) {
		return func() {}, nil
	}
	timer := time.NewTimer(turnWait)
	defer timer.Stop()
	select {
	case s.turns <- struct{}{}:
		return func() { <-s.turns }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-timer.C:
		return nil, &contract.TurnError{Code: provider.CodeRateLimited, Message: "this box has as many model calls open as it may", Retriable: true}
	}
}

// read reads and translates a request, or answers it with what is wrong.
func (s *server) read(w http.ResponseWriter, r *http.Request, f format, counting bool) (asked, bool) {
	// Not every connection supports deadlines; the box's end ends the request as well.
	_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(bodyTime))
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	_ = http.NewResponseController(w).SetReadDeadline(time.Time{})
	if err != nil {
		var large *http.MaxBytesError
		if errors.As(err, &large) {
			fail(w, f, &contract.TurnError{Code: provider.CodeTooLarge, Message: "the request is over 8 MiB"})
		}
		return asked{}, false // otherwise the program has gone
	}
	a, err := f.decode(&input{ctx: r.Context(), server: s, counting: counting}, body)
	// What a program names is what its own vendor would have; which model answers, the host decides.
	if !defence.Off(defence.InwardModel) {
		a.request.Model = ""
	}
	if err == nil {
		err = a.request.Validate()
	}
	if err != nil {
		var te *contract.TurnError
		if !errors.As(err, &te) {
			te = &contract.TurnError{Code: provider.CodeInvalid, Message: fault.Text(err)}
		}
		fail(w, f, te)
		return asked{}, false
	}
	a.prepare()
	return a, true
}

// prepare says in the request what the contract has no field for.
func (a *asked) prepare() {
	say := ""
	switch {
	case a.never && !calls(a.request.Messages):
		a.request.Tools = nil
	case a.never:
		say = "Answer without calling a tool."
	case a.must && a.only != "":
		say = "Your answer has to call the tool " + a.only + "."
	case a.must:
		say = "Your answer has to call one of your tools."
	}
	if say != "" {
		a.request.System = strings.TrimSpace(a.request.System + "\n\n" + say)
	}
}

// calls reports whether a conversation has calls, of which services want to know the tools.
func calls(messages []contract.Message) bool {
	for _, m := range messages {
		for _, p := range m.Parts {
			if p.Call != nil {
				return true
			}
		}
	}
	return false
}

// finish makes of a turn what the request asked for, or says that it is not that. A call that was cut
// off inside its arguments must not be run, so it is left out; the turn's stop says why.
func (a *asked) finish(turn *contract.Turn) error {
	parts, n, named := []contract.Part{}, 0, false
	for _, p := range turn.Message.Parts {
		if c := p.Call; c != nil {
			if c.Cut || a.single && n > 0 {
				continue
			}
			n++
			named = named || c.Name == a.only
		}
		parts = append(parts, p)
	}
	turn.Message.Parts = parts
	if turn.Stop != contract.StopEnd && turn.Stop != contract.StopToolUse {
		return nil
	}
	switch {
	case a.must && n == 0, a.must && a.only != "" && !named:
		return &contract.TurnError{Code: gateway.CodeMalformed, Message: "the model did not call the tool that tool_choice demands", Retriable: true}
	case a.never && n > 0:
		return &contract.TurnError{Code: gateway.CodeMalformed, Message: "the model called a tool although tool_choice is none", Retriable: true}
	}
	return nil
}

// count answers how many tokens a request has, as an estimate.
func (s *server) count(w http.ResponseWriter, r *http.Request) {
	release, err := s.take(r.Context())
	if err != nil {
		fail(w, messages{}, turnError(err))
		return
	}
	defer release()
	if a, ok := s.read(w, r, messages{}, true); ok {
		writeJSON(w, http.StatusOK, map[string]any{"input_tokens": gateway.EstimateTokens(a.request)})
	}
}

// models lists the one model that there is.
func (s *server) models(w http.ResponseWriter, r *http.Request) {
	f := formatOf(r)
	vendor, name, err := s.Model(r.Context())
	if err != nil {
		fail(w, f, noModel(err))
		return
	}
	id := vendor + "/" + name
	if _, theirs := f.(messages); theirs {
		writeJSON(w, http.StatusOK, map[string]any{"data": []any{map[string]any{"type": "model", "id": id, "display_name": id, "created_at": "1970-01-01T00:00:00Z"}},
			"has_more": false, "first_id": id, "last_id": id})
		return
	}
	writeJSON(w, http.StatusOK, map[string]any{"object": "list", "data": []any{map[string]any{"id": id, "object": "model", "created": 0, "owned_by": vendor}}})
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v) // if the program has gone, the answer is cut off
}
