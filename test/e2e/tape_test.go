package e2e_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strconv"
	"sync"
	"testing"
	"time"

	anthropicsdk "github.com/anthropics/anthropic-sdk-go"
	openaisdk "github.com/openai/openai-go/v3"

	"choir.dev/choiros/eval/cassette"
	"choir.dev/choiros/test/modelserver"
)

// model plays a cassette of one task, keeps what it was sent, and says how far the task has got.
type model struct {
	url string

	mu      sync.Mutex
	sent    []sent
	step    int // the newest step of the Associate that a request had
	waiting []waiting
}

// sent is a request as it arrived.
type sent struct {
	path string
	body []byte
}

// waiting is told of the next request that has a step; -1 is any request.
type waiting struct {
	step int
	told chan struct{}
}

// tape starts a model that plays a cassette as the model cassette-count.
func tape(t *testing.T, c *cassette.Cassette) *model {
	player := cassette.NewPlayer()
	player.Put("count", c)
	m := &model{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return // who sent it was killed meanwhile
		}
		m.heard(r.URL.Path, body)
		r.Body = io.NopCloser(bytes.NewReader(body))
		player.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	m.url = server.URL
	return m
}

// stepIDs finds the ids that a player gave the calls of a cassette's only task.
var stepIDs = regexp.MustCompile(`"step_a_1_(\d+)_\d+"`)

func (m *model) heard(path string, body []byte) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.sent = append(m.sent, sent{path, body})
	for _, id := range stepIDs.FindAllSubmatch(body, -1) {
		n, _ := strconv.Atoi(string(id[1]))
		m.step = max(m.step, n)
	}
	var rest []waiting
	for _, w := range m.waiting {
		if w.step > m.step {
			rest = append(rest, w)
			continue
		}
		close(w.told)
	}
	m.waiting = rest
}

// next is closed with the next request that has the task's newest step.
func (m *model) next() <-chan struct{} { return m.wait(-1) }

func (m *model) wait(step int) <-chan struct{} {
	m.mu.Lock()
	defer m.mu.Unlock()
	told := make(chan struct{})
	if step >= 0 && step <= m.step && len(m.sent) > 0 {
		close(told)
		return told
	}
	m.waiting = append(m.waiting, waiting{step, told})
	return told
}

// reaches waits for the request that has a step.
func (m *model) reaches(t *testing.T, step int) {
	t.Helper()
	select {
	case <-m.wait(step):
	case <-time.After(2 * time.Minute):
		t.Fatalf("the task does not come to step %d", step)
	}
}

// newest is the newest step that a request had.
func (m *model) newest() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.step
}

// decoded decodes all that was sent into the vendors' own types, and returns how much that was. Each call of a request has its return,
// and each return its call, once.
func (m *model) decoded(t *testing.T, wire modelserver.Wire) int {
	t.Helper()
	m.mu.Lock()
	defer m.mu.Unlock()
	for n, s := range m.sent {
		var calls, returns []string
		body, err := streamed(s.body)
		switch {
		case err != nil:
		case wire == modelserver.Anthropic && s.path == "/v1/messages":
			calls, returns, err = anthropicCalls(body)
		case wire == modelserver.OpenAI && s.path == "/v1/chat/completions":
			calls, returns, err = openaiCalls(body)
		default:
			t.Errorf("request %d went to %s", n, s.path)
		}
		if err != nil {
			t.Fatalf("request %d: %.2000s", n, err)
		}
		open := map[string]int{}
		for _, id := range calls {
			open[id]++
		}
		for _, id := range returns {
			open[id] += 10
		}
		for id, was := range open {
			if was != 11 {
				t.Errorf("request %d has %d calls %s and %d returns of it", n, was%10, id, was/10)
			}
		}
	}
	return len(m.sent)
}

// streamed takes from a request that it is to be streamed, which the vendors' clients say by another method and not in their types.
func streamed(body []byte) ([]byte, error) {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(body, &fields); err != nil {
		return nil, err
	}
	if string(fields["stream"]) != "true" {
		return nil, errors.New("it is not to be streamed")
	}
	delete(fields, "stream")
	return json.Marshal(fields)
}

func anthropicCalls(body []byte) (calls, returns []string, err error) {
	p, err := modelserver.Strictly[anthropicsdk.MessageNewParams](body)
	for _, m := range p.Messages {
		for _, b := range m.Content {
			switch {
			case b.OfToolUse != nil:
				calls = append(calls, b.OfToolUse.ID)
			case b.OfToolResult != nil:
				returns = append(returns, b.OfToolResult.ToolUseID)
			}
		}
	}
	return calls, returns, err
}

func openaiCalls(body []byte) (calls, returns []string, err error) {
	p, err := modelserver.Strictly[openaisdk.ChatCompletionNewParams](body)
	for _, m := range p.Messages {
		switch {
		case m.OfTool != nil:
			returns = append(returns, m.OfTool.ToolCallID)
		case m.OfAssistant != nil:
			for _, c := range m.OfAssistant.ToolCalls {
				calls = append(calls, c.OfFunction.ID)
			}
		}
	}
	return calls, returns, err
}
