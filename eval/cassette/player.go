package cassette

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"choir.dev/choiros/internal/lazy"
)

// maxRequest bounds a request that is read.
const maxRequest = 64 << 20

// Prefix is what the name of a model that plays a cassette begins with: cassette-NAME.
const Prefix = "cassette-"

// Player answers requests of models from cassettes, in the wire formats of Anthropic's Messages and
// of OpenAI's chat completions. Which step is next follows from the request alone, from the ids of
// calls that it returns: a request that is sent again, after a crash too, is answered again.
type Player struct {
	made atomic.Int64 // counts ids of calls, which no conversation may have twice

	mu    sync.Mutex
	byID  map[string]*Cassette
	begun map[string]int    // by cassette: how many tasks have begun, where nothing else tells them apart
	last  map[string]string // by loop: the last request's content, from which follows what is cached
}

// NewPlayer returns a player without cassettes.
func NewPlayer() *Player {
	return &Player{byID: map[string]*Cassette{}, begun: map[string]int{}, last: map[string]string{}}
}

// Put lets requests of the model Prefix+name be answered from c.
func (p *Player) Put(name string, c *Cassette) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.byID[name] = c
}

// ServeHTTP implements http.Handler.
func (p *Player) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var speak wire
	switch path := strings.TrimPrefix(r.URL.Path, "/v1"); {
	case r.Method == http.MethodPost && path == "/messages":
		speak = anthropic{}
	case r.Method == http.MethodPost && path == "/chat/completions":
		speak = openai{}
	default:
		http.NotFound(w, r)
		return
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxRequest))
	if err != nil {
		return // the client is gone, or sends too much
	}
	var in request
	if err := json.Unmarshal(body, &in); err != nil {
		speak.fail(w, "the request is no JSON: "+err.Error())
		return
	}
	a, err := p.answer(in)
	if err != nil {
		speak.fail(w, "cassette: "+err.Error())
		return
	}
	speak.stream(w, a)
}

// answer is a step as it is played.
type answer struct {
	model      string
	step       Step
	ids        []string
	in, cached int64 // tokens of the request
	out        int64
}

// ids finds the ids that a player made: loop, task, step.
var ids = lazy.Regexp(`^step_([da])_(\d+)_(\d+)_\d+$`)

// place is where in a conversation a request stands.
type place struct {
	task, step int // step is the last one that the request has
}

// answer finds the step that a request asks for.
func (p *Player) answer(in request) (answer, error) {
	name, ok := strings.CutPrefix(in.Model, Prefix)
	p.mu.Lock()
	defer p.mu.Unlock()
	c := p.byID[name]
	if !ok || c == nil {
		return answer{}, fmt.Errorf("there is none for the model %q", short(in.Model))
	}
	role := in.role()
	if role == "" {
		return answer{}, fmt.Errorf("the request offers neither report nor finish, so it is of no loop")
	}
	at := in.place(role)
	if at.task == 0 {
		at.task = p.task(name, c, role, in.text())
	}
	steps := c.of(role, at.task)
	here := in.renamed()
	if at.step > 0 && at.step <= len(steps) && !strings.Contains(in.returned(), here(steps[at.step-1].Until)) {
		at.step--
	}
	for at.step < len(steps) && len(steps[at.step].Calls) == 0 && in.said(steps[at.step].Text) {
		at.step++ // an answer without calls has no id by which it could be found
	}
	if at.step >= len(steps) {
		return answer{}, fmt.Errorf("%s has no step %d of the %s (task %d)", name, at.step+1, role, at.task)
	}
	s := steps[at.step]
	if s.Expect != "" && !strings.Contains(in.text(), here(s.Expect)) {
		return answer{}, fmt.Errorf("step %d of the %s (task %d) expects %q in its request, which has it nowhere", at.step+1, role, at.task, short(s.Expect))
	}
	a := answer{model: in.Model, step: s}
	a.step.Calls = slices.Clone(s.Calls)
	for i, call := range s.Calls {
		a.step.Calls[i].Args = json.RawMessage(here(string(call.Args)))
		a.ids = append(a.ids, fmt.Sprintf("step_%c_%d_%d_%d", role[0], at.task, at.step+1, p.made.Add(1)))
	}
	loop := fmt.Sprint(name, role, at.task)
	content := in.content()
	same := common(p.last[loop], content)
	p.last[loop] = content
	a.cached = int64(same / 4)
	a.in = int64(len(content)/4) - a.cached + 1
	a.out = int64(len(s.Text)/4 + 1)
	for _, call := range s.Calls {
		a.out += int64(len(call.Args)/4 + 1)
	}
	return a, nil
}

// task finds which task a conversation is of that has no step yet. The caller holds mu.
func (p *Player) task(name string, c *Cassette, role, text string) int {
	most := c.tasks()
	if role == Director || most <= 1 {
		return 1
	}
	if task := c.first(text); task > 0 {
		return task
	}
	p.begun[name]++
	return min(p.begun[name], most)
}

// common is how many bytes two texts have in common at their beginning.
func common(a, b string) int {
	n := 0
	for n < len(a) && n < len(b) && a[n] == b[n] {
		n++
	}
	return n
}

// request is what both wire formats have of a request.
type request struct {
	Model    string          `json:"model"`
	System   json.RawMessage `json:"system"`
	Messages []message       `json:"messages"`
	Tools    []struct {
		Name     string `json:"name"`
		Function struct {
			Name string `json:"name"`
		} `json:"function"`
	} `json:"tools"`
}

type message struct {
	Role      string          `json:"role"`
	Content   json.RawMessage `json:"content"`
	ToolCalls []struct {
		ID string `json:"id"`
	} `json:"tool_calls"`
}

// block is a part of a message in Anthropic's format; OpenAI's texts have the same fields.
type block struct {
	Type    string          `json:"type"`
	Text    string          `json:"text"`
	ID      string          `json:"id"`
	Content json.RawMessage `json:"content"`
}

func (in request) role() string {
	for _, t := range in.Tools {
		switch t.Name + t.Function.Name {
		case "report":
			return Director
		case "finish":
			return Associate
		}
	}
	return ""
}

// place finds the newest step of a loop that the request has.
func (in request) place(role string) place {
	var at place
	see := func(id string) {
		m := ids().FindStringSubmatch(id)
		if m == nil || m[1] != role[:1] {
			return
		}
		task, _ := strconv.Atoi(m[2])
		step, _ := strconv.Atoi(m[3])
		if task > 0 && task <= maxTasks && step <= maxSteps {
			at = place{task: task, step: max(at.step, step)}
		}
	}
	for _, m := range in.Messages {
		for _, c := range m.ToolCalls {
			see(c.ID)
		}
		for _, b := range blocks(m.Content) {
			if b.Type == "tool_use" {
				see(b.ID)
			}
		}
	}
	return at
}

// said reports whether an answer of the conversation has this text.
func (in request) said(text string) bool {
	for _, m := range in.Messages {
		var b strings.Builder
		if flatten(&b, m.Content); m.Role == "assistant" && strings.TrimSpace(b.String()) == strings.TrimSpace(text) {
			return true
		}
	}
	return false
}

// returned is the text behind the conversation's last answer, which is what its calls returned.
func (in request) returned() string {
	var b strings.Builder
	for _, m := range in.Messages {
		if m.Role == "assistant" {
			b.Reset()
			continue
		}
		flatten(&b, m.Content)
	}
	return b.String()
}

// handles finds the handles of commands in the background: their number, and the mark of their box.
var handles = lazy.Regexp(`\bbg(\d{1,4})_[a-z2-7]{4}\b`)

// renamed puts the handles that the conversation has in the place of a cassette's. Each box marks its own
// anew, so those of a cassette are of another box.
func (in request) renamed() func(string) string {
	now := map[string]string{}
	for _, m := range handles().FindAllStringSubmatch(in.text(), -1) {
		now[m[1]] = m[0]
	}
	return func(s string) string {
		return handles().ReplaceAllStringFunc(s, func(old string) string {
			return cmp.Or(now[handles().FindStringSubmatch(old)[1]], old)
		})
	}
}

// text is all of the request's text.
func (in request) text() string {
	var b strings.Builder
	flatten(&b, in.System)
	for _, m := range in.Messages {
		flatten(&b, m.Content)
	}
	return b.String()
}

// content is what a service's cache compares: tools, system prompt and messages in their order,
// without the marks that say where a cached part ends.
func (in request) content() string {
	tools, _ := json.Marshal(in.Tools) // came from JSON
	b := strings.Builder{}
	b.Write(tools)
	flatten(&b, in.System)
	for _, m := range in.Messages {
		b.WriteString(m.Role + "\n")
		flatten(&b, m.Content)
	}
	return b.String()
}

func blocks(raw json.RawMessage) []block {
	var out []block
	if json.Unmarshal(raw, &out) != nil {
		return nil
	}
	return out
}

func flatten(b *strings.Builder, raw json.RawMessage) {
	var s string
	if json.Unmarshal(raw, &s) == nil {
		b.WriteString(s + "\n")
		return
	}
	for _, part := range blocks(raw) {
		if part.Text != "" {
			b.WriteString(part.Text + "\n")
		}
		flatten(b, part.Content)
	}
}
