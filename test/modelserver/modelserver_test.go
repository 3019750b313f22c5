package modelserver_test

import (
	"context"
	"encoding/json"
	"net/http"
	"runtime"
	"strings"
	"testing"

	anthropic "github.com/anthropics/anthropic-sdk-go"
	aoption "github.com/anthropics/anthropic-sdk-go/option"
	openai "github.com/openai/openai-go/v3"
	ooption "github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/responses"

	"choir.dev/choiros/test/modelserver"
)

// TestTheVendorsClientsUnderstandIt sends requests as the vendors' SDKs do when they do not stream.
func TestTheVendorsClientsUnderstandIt(t *testing.T) {
	turn := modelserver.Turn{Text: "look: {{colour}}", Calls: []modelserver.Call{{ID: "c1", Name: "edit", Args: modelserver.Args(map[string]string{"new": `{{colour}} "quoted"`})}},
		Usage: &modelserver.Usage{In: 7, Out: 9}}
	s := modelserver.New(modelserver.Script{Turns: []modelserver.Turn{turn, turn, turn}}).Start()
	defer s.Close()
	s.Set("colour", "#12\"34")
	const want = `{"new":"#12\"34 \"quoted\""}`

	am := anthropic.NewMessageService(aoption.WithBaseURL(s.URL()), aoption.WithAPIKey("key-a"), aoption.WithMaxRetries(0))
	a, err := am.New(context.Background(), anthropic.MessageNewParams{Model: "m", MaxTokens: 100, Messages: []anthropic.MessageParam{anthropic.NewUserMessage(anthropic.NewTextBlock("hi"))}})
	if err != nil {
		t.Fatal(err)
	}
	if len(a.Content) != 2 || a.Content[0].Text != `look: #12"34` || string(a.Content[1].Input) != want || a.StopReason != "tool_use" || a.Usage.OutputTokens != 9 {
		t.Errorf("got %+v", a)
	}
	oc := openai.NewChatCompletionService(ooption.WithBaseURL(s.OpenAIURL()), ooption.WithAPIKey("key-o"), ooption.WithMaxRetries(0))
	o, err := oc.New(context.Background(), openai.ChatCompletionNewParams{Model: "m", Messages: []openai.ChatCompletionMessageParamUnion{openai.UserMessage("hi")}})
	if err != nil {
		t.Fatal(err)
	}
	m := o.Choices[0].Message
	if m.Content != `look: #12"34` || m.ToolCalls[0].Function.Arguments != want || o.Usage.PromptTokens != 7 {
		t.Errorf("got %+v", o)
	}
	or := responses.NewResponseService(ooption.WithBaseURL(s.OpenAIURL()), ooption.WithAPIKey("key-o"), ooption.WithMaxRetries(0))
	r, err := or.New(context.Background(), responses.ResponseNewParams{Model: "m", Input: responses.ResponseNewParamsInputUnion{OfString: openai.String("hi")}})
	if err != nil {
		t.Fatal(err)
	}
	if r.OutputText() != `look: #12"34` || len(r.Output) != 2 || r.Output[1].Arguments.OfString != want || r.Usage.OutputTokens != 9 || r.Status != responses.ResponseStatusCompleted {
		t.Errorf("got %s", r.RawJSON())
	}
	reqs := s.Requests()
	if len(reqs) != 3 || !strings.Contains(reqs[2].Text, "hi") || reqs[0].Key != "key-a" || reqs[1].Key != "key-o" || reqs[0].Stream || !strings.Contains(reqs[1].Text, "hi") || len(s.Left()) != 0 {
		t.Errorf("requests %+v", reqs)
	}
}

func TestWhichTurnIsPlayed(t *testing.T) {
	s := modelserver.New(modelserver.Script{Turns: []modelserver.Turn{
		{Role: "associate", Text: "worker {{id}}", Match: "task", Capture: map[string]string{"id": `task (\w+)`}},
		{Role: "director", Text: "boss"},
		{Text: "anyone", Repeat: true, Match: "^again"},
	}}).Start()
	defer s.Close()
	ask := func(tool, text string) (int, string) {
		t.Helper()
		body, err := json.Marshal(map[string]any{"model": "m", "messages": []any{map[string]any{"role": "user", "content": text}},
			"tools": []any{map[string]any{"type": "function", "function": map[string]any{"name": tool}}}})
		if err != nil {
			t.Fatal(err)
		}
		resp, err := http.Post(s.OpenAIURL()+"/chat/completions", "application/json", strings.NewReader(string(body)))
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		var out struct {
			Choices []struct {
				Message struct{ Content string }
			}
		}
		if err := json.NewDecoder(resp.Body).Decode(&out); err != nil {
			t.Fatal(err)
		}
		if len(out.Choices) == 0 {
			return resp.StatusCode, ""
		}
		return resp.StatusCode, out.Choices[0].Message.Content
	}
	for i, c := range []struct{ tool, text, want string }{
		{"report", "x", "boss"}, {"finish", "do task t42 now", "worker t42"}, {"report", "again", "anyone"}, {"finish", "again", "anyone"}, {"finish", "do task t43 now", ""},
	} {
		status, got := ask(c.tool, c.text)
		if got != c.want || (status == 200) != (c.want != "") {
			t.Errorf("request %d: status %d, %q; want %q", i, status, got, c.want)
		}
	}
	if all := s.Requests(); all[4].Turn != -1 || all[1].Turn != 0 {
		t.Errorf("turns %d, %d", all[4].Turn, all[1].Turn)
	}
	if _, err := modelserver.ParseScript([]byte(`{"turns":[{"match":"("}]}`)); err == nil {
		t.Error("a script with a bad expression was taken")
	}
	if _, err := modelserver.ParseScript([]byte(`{"turns":[],"oops":1}`)); err == nil {
		t.Error("a script with an unknown field was taken")
	}
}

func TestATurnCanBeHeldBack(t *testing.T) {
	s := modelserver.New(modelserver.Script{Turns: []modelserver.Turn{{Text: "at last", Hold: "gate", Repeat: true}}}).Start()
	defer s.Close()
	if s.Held("gate") {
		t.Error("held before anybody asked")
	}
	got := make(chan int, 1)
	go func() {
		resp, err := http.Post(s.OpenAIURL()+"/chat/completions", "application/json", strings.NewReader(`{"model":"m","messages":[]}`))
		if err != nil {
			got <- 0
			return
		}
		resp.Body.Close()
		got <- resp.StatusCode
	}()
	for !s.Held("gate") {
		runtime.Gosched()
	}
	select {
	case code := <-got:
		t.Fatalf("answered with %d before the release", code)
	default:
	}
	s.Release("gate")
	s.Release("gate")
	if code := <-got; code != http.StatusOK {
		t.Errorf("status %d", code)
	}
}
