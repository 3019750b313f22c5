package modelserver

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"sync"
)

// Wire is a wire format.
type Wire string

// These are the wire formats.
const (
	Anthropic Wire = "anthropic"
	OpenAI    Wire = "openai" // chat completions
	Responses Wire = "responses"
	Bedrock   Wire = "bedrock" // Anthropic's, as Amazon Bedrock speaks it
)

// Request is one request that was received.
type Request struct {
	Wire   Wire
	Path   string
	Key    string // x-api-key or the bearer token
	Header http.Header
	Body   []byte
	Stream bool
	Role   string // as its tools show
	Text   string // system prompt, messages and tool returns, in order
	Turn   int    // the index of the turn that was played, -1 if none fitted
}

// Server plays a script. It is an http.Handler; Start serves it on loopback.
type Server struct {
	mu       sync.Mutex
	script   Script
	played   []bool
	values   map[string]string
	requests []Request
	models   []string
	gates    map[string]*gate
	closing  chan struct{}
	once     sync.Once
	http     *httptest.Server
}

// New returns a server for a script. It panics on a script that can't be played.
func New(s Script) *Server {
	if err := s.check(); err != nil {
		panic("modelserver: " + err.Error())
	}
	v := maps.Clone(s.Values)
	if v == nil {
		v = map[string]string{}
	}
	return &Server{script: s, played: make([]bool, len(s.Turns)), values: v, models: []string{"script-1"}, gates: map[string]*gate{}, closing: make(chan struct{})}
}

// Start serves on a loopback port until Close.
func (s *Server) Start() *Server {
	s.http = httptest.NewServer(s)
	return s
}

// URL is the server's root: the base URL for Anthropic's format.
func (s *Server) URL() string { return s.http.URL }

// OpenAIURL is the base URL for OpenAI's formats.
func (s *Server) OpenAIURL() string { return s.http.URL + "/v1" }

// Close ends every answer that is under way, and the server if Start started one.
func (s *Server) Close() {
	s.once.Do(func() { close(s.closing) })
	if s.http != nil {
		s.http.CloseClientConnections()
		s.http.Close()
	}
}

// Requests returns the requests so far.
func (s *Server) Requests() []Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]Request(nil), s.requests...)
}

// Left returns the indexes of turns that were not played.
func (s *Server) Left() []int {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []int
	for i, t := range s.script.Turns {
		if !s.played[i] && !t.Repeat {
			out = append(out, i)
		}
	}
	return out
}

// Set sets the value of {{name}}.
func (s *Server) Set(name, value string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.values[name] = value
}

// Add appends turns to the script.
func (s *Server) Add(turns ...Turn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.script.Turns = append(s.script.Turns, turns...)
	s.played = append(s.played, make([]bool, len(turns))...)
}

// gate is where turns with the same Hold wait.
type gate struct {
	open    chan struct{}
	arrived bool // whether a request waits, or has waited, at it
}

// gate returns the gate with a name. The caller holds mu.
func (s *Server) gate(name string) *gate {
	g := s.gates[name]
	if g == nil {
		g = &gate{open: make(chan struct{})}
		s.gates[name] = g
	}
	return g
}

// Held reports whether a turn with this Hold has been asked for.
func (s *Server) Held(name string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.gate(name).arrived
}

// Release releases every turn with this Hold, including later ones.
func (s *Server) Release(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	g := s.gate(name)
	select {
	case <-g.open:
	default:
		close(g.open)
	}
}

// hold waits at a gate; it returns false if the caller has gone.
func (s *Server) hold(ctx context.Context, name string) bool {
	if name == "" {
		return true
	}
	s.mu.Lock()
	g := s.gate(name)
	g.arrived = true
	s.mu.Unlock()
	select {
	case <-g.open:
		return true
	case <-ctx.Done():
	case <-s.closing:
	}
	return false
}

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	path := strings.TrimPrefix(r.URL.Path, "/v1")
	_, _, bedrock := bedrockRequest(path)
	switch {
	case r.Method == http.MethodPost && bedrock:
		s.answer(w, r, Bedrock)
	case r.Method == http.MethodGet && path == "/models":
		s.listModels(w)
	case r.Method == http.MethodPost && path == "/messages":
		s.answer(w, r, Anthropic)
	case r.Method == http.MethodPost && path == "/chat/completions":
		s.answer(w, r, OpenAI)
	case r.Method == http.MethodPost && path == "/responses":
		s.answer(w, r, Responses)
	default:
		http.NotFound(w, r)
	}
}

func (s *Server) listModels(w http.ResponseWriter) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var data []map[string]any
	for _, m := range s.models {
		data = append(data, map[string]any{"id": m, "object": "model"})
	}
	writeJSON(w, map[string]any{"object": "list", "data": data})
}

func (s *Server) answer(w http.ResponseWriter, r *http.Request, wire Wire) {
	body, err := io.ReadAll(io.LimitReader(r.Body, 64<<20))
	if err != nil {
		return // the client is gone
	}
	req := Request{Wire: wire, Path: r.URL.Path, Header: r.Header.Clone(), Body: body, Key: r.Header.Get("X-Api-Key"), Turn: -1}
	if k, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer "); ok && req.Key == "" {
		req.Key = k
	}
	var in incoming
	if err := json.Unmarshal(body, &in); err != nil {
		fail(w, wire, http.StatusBadRequest, "the body is not JSON: "+err.Error())
		return
	}
	if wire == Bedrock {
		in.Model, in.Stream, _ = bedrockRequest(r.URL.Path)
		if err := signed(r, body); err != nil && req.Key == "" {
			fail(w, wire, http.StatusForbidden, "The request signature we calculated does not match the signature you provided: "+err.Error())
			return
		}
	}
	req.Stream, req.Role, req.Text = in.Stream, in.role(), in.text()
	turn, ok := s.take(&req)
	if !ok {
		fail(w, wire, http.StatusInternalServerError, fmt.Sprintf("the script has no turn for this request (role %q)", req.Role))
		return
	}
	if !s.hold(r.Context(), turn.Hold) {
		return
	}
	p := player{w: w, r: r, wire: wire, turn: turn, req: req, model: in.Model, maxOut: max(in.MaxOut, in.MaxOut2, in.MaxOut3), closing: s.closing}
	p.play()
}

// take finds the turn for a request, marks it as played, and records the request.
func (s *Server) take(req *Request) (Turn, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer func() { s.requests = append(s.requests, *req) }()
	for i, t := range s.script.Turns {
		if (s.played[i] && !t.Repeat) || (t.Role != "" && t.Role != req.Role) {
			continue
		}
		if t.Match != "" && !regexp.MustCompile(t.Match).MatchString(req.Present()) {
			continue
		}
		for k, expr := range t.Capture {
			if m := regexp.MustCompile(expr).FindStringSubmatch(req.Text); len(m) > 1 {
				s.values[k] = m[1]
			}
		}
		s.played[i] = true
		req.Turn = i
		t.Text = fill(t.Text, s.values, false)
		calls := make([]Call, len(t.Calls))
		for j, c := range t.Calls {
			c.Name = fill(c.Name, s.values, false)
			c.Args = json.RawMessage(fill(string(c.Args), s.values, true))
			if len(c.Args) == 0 {
				c.Args = json.RawMessage("{}")
			}
			if c.Raw == "" {
				c.Raw = string(c.Args)
			}
			if c.ID == "" {
				c.ID = fmt.Sprintf("call_%d_%d_%d", i, j, len(s.requests))
			}
			calls[j] = c
		}
		t.Calls = calls
		return t, true
	}
	return Turn{}, false
}

// incoming is the part of a request in any of the formats that is looked at.
type incoming struct {
	Model    string          `json:"model"`
	Stream   bool            `json:"stream"`
	MaxOut   int64           `json:"max_tokens"`
	MaxOut2  int64           `json:"max_completion_tokens"`
	MaxOut3  int64           `json:"max_output_tokens"`
	System   json.RawMessage `json:"system"`
	Instruct json.RawMessage `json:"instructions"`
	Input    json.RawMessage `json:"input"`
	Messages []struct {
		Role    string          `json:"role"`
		Content json.RawMessage `json:"content"`
	} `json:"messages"`
	Tools []struct {
		Name     string `json:"name"`
		Function struct {
			Name string `json:"name"`
		} `json:"function"`
	} `json:"tools"`
}

func (in incoming) role() string {
	for _, t := range in.Tools {
		switch t.Name + t.Function.Name {
		case "report":
			return "director"
		case "finish":
			return "associate"
		}
	}
	return ""
}

func (in incoming) text() string {
	var b strings.Builder
	flatten(&b, in.System)
	flatten(&b, in.Instruct)
	flatten(&b, in.Input)
	for _, m := range in.Messages {
		flatten(&b, m.Content)
	}
	return b.String()
}

// ofEarlierRuns are lines that quote what was asked and reported in a computer's earlier runs.
var ofEarlierRuns = regexp.MustCompile(`(?m)^> (Asked|Reported): .*\n?`)

// Present is the request's text without what it quotes of earlier runs, so that a turn for one prompt is not played to a
// later one.
func (r Request) Present() string { return ofEarlierRuns.ReplaceAllString(r.Text, "") }

// flatten collects the texts of a string, or of blocks with text, content or output.
func flatten(b *strings.Builder, raw json.RawMessage) {
	var s string
	var blocks []struct {
		Text    string          `json:"text"`
		Content json.RawMessage `json:"content"`
		Output  json.RawMessage `json:"output"`
	}
	switch {
	case json.Unmarshal(raw, &s) == nil:
		b.WriteString(s + "\n")
	case json.Unmarshal(raw, &blocks) == nil:
		for _, bl := range blocks {
			if bl.Text != "" {
				b.WriteString(bl.Text + "\n")
			}
			flatten(b, bl.Content)
			flatten(b, bl.Output)
		}
	}
}

func writeJSON(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(v) // the client may have gone
}

func fail(w http.ResponseWriter, wire Wire, status int, message string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	var v any = map[string]any{"error": map[string]any{"message": message, "type": "error", "code": nil, "param": nil}}
	switch wire {
	case Bedrock:
		v = map[string]any{"message": message}
	case Anthropic:
		v = map[string]any{"type": "error", "error": map[string]any{"type": "api_error", "message": message}}
	}
	_ = json.NewEncoder(w).Encode(v) // the client may have gone
}
