package cassette_test

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http/httptest"
	"strings"
	"testing"

	anthropic "github.com/anthropics/anthropic-sdk-go"
	aoption "github.com/anthropics/anthropic-sdk-go/option"
	openai "github.com/openai/openai-go/v3"
	ooption "github.com/openai/openai-go/v3/option"

	"choir.dev/choiros/eval/cassette"
)

const head = `{"cassette":1,"origin":"written, not recorded from a model"}` + "\n"

func read(t *testing.T, steps string) *cassette.Cassette {
	t.Helper()
	c, err := cassette.Read(strings.NewReader(head + steps))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestAFileThatIsNoCassetteIsRefused(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{
		"empty":              "",
		"no steps":           head,
		"another form":       `{"cassette":2,"origin":"written, not recorded from a model"}` + "\n" + `{"role":"director","text":"x"}`,
		"no origin":          `{"cassette":1}` + "\n" + `{"role":"director","text":"x"}`,
		"unknown field":      head + `{"role":"director","text":"x","key":"sk-1"}`,
		"unknown role":       head + `{"role":"nobody","text":"x"}`,
		"an empty answer":    head + `{"role":"director"}`,
		"a task's director":  head + `{"role":"director","task":1,"text":"x"}`,
		"bad expression":     head + `{"role":"associate","match":"(","text":"x"}`,
		"arguments":          head + `{"role":"associate","calls":[{"name":"bash","args":[]}]}`,
		"two on a line":      head + `{"role":"associate","text":"x"} {"role":"associate","text":"y"}`,
		"unknown stop":       head + `{"role":"associate","stop":"maybe"}`,
		"waits for nothing":  head + `{"role":"associate","text":"x","until":"ended"}`,
		"cut":                head + `{"role":"associate","te`,
		"too long of a line": head + `{"role":"associate","text":"` + strings.Repeat("x", 5<<20) + `"}`,
	} {
		if c, err := cassette.Read(strings.NewReader(text)); err == nil {
			t.Errorf("%s: got %+v", name, c)
		}
	}
	c := read(t, `{"role":"director","text":"<é>","calls":[{"name":"report","args":{"a":1}}]}`)
	var out bytes.Buffer
	if err := c.Write(&out); err != nil {
		t.Fatal(err)
	}
	if again, err := cassette.Read(&out); err != nil || again.Steps[0].Text != "<é>" || string(again.Steps[0].Calls[0].Args) != `{"a":1}` {
		t.Errorf("it does not come back: %+v, %v", again, err)
	}
}

// ask sends a request as the vendor's own client does, and returns the ids, the text and the error.
func askAnthropic(url, model, tool string, messages ...anthropic.MessageParam) (ids []string, text string, err error) {
	s := anthropic.NewMessageService(aoption.WithBaseURL(url), aoption.WithAPIKey("k"), aoption.WithMaxRetries(0))
	stream := s.NewStreaming(context.Background(), anthropic.MessageNewParams{Model: anthropic.Model(model), MaxTokens: 10, Messages: messages,
		Tools: []anthropic.ToolUnionParam{anthropic.ToolUnionParamOfTool(anthropic.ToolInputSchemaParam{}, tool)}})
	var m anthropic.Message
	for stream.Next() {
		if err := m.Accumulate(stream.Current()); err != nil {
			return nil, "", err
		}
	}
	for _, b := range m.Content {
		text += b.Text
		if b.ID != "" {
			ids = append(ids, b.ID)
			text += b.Name + string(b.Input)
		}
	}
	return ids, text, stream.Err()
}

// TestThePlayerAnswersWhatIsAskedAgain shows that which step comes next follows from the request
// alone, so that one that is sent again after a crash gets the same answer, with another id.
func TestThePlayerAnswersWhatIsAskedAgain(t *testing.T) {
	t.Parallel()
	p := cassette.NewPlayer()
	p.Put("a", read(t, `{"role":"associate","text":"one","calls":[{"name":"bash","args":{"command":"ls"}}]}
{"role":"associate","text":"just text"}
{"role":"associate","expect":"exit code 0","calls":[{"name":"finish","args":{"status":"ok"}}]}
{"role":"director","text":"the director's"}
`))
	s := httptest.NewServer(p)
	defer s.Close()
	user := anthropic.NewUserMessage(anthropic.NewTextBlock("go on"))
	first, text, err := askAnthropic(s.URL, "cassette-a", "finish", user)
	if err != nil || text != `onebash{"command":"ls"}` || len(first) != 1 {
		t.Fatalf("%q, %v, %v", text, first, err)
	}
	again, text, err := askAnthropic(s.URL, "cassette-a", "finish", user)
	if err != nil || text != `onebash{"command":"ls"}` || again[0] == first[0] {
		t.Errorf("again: %q, %v, %v", text, again, err)
	}
	called := anthropic.NewAssistantMessage(anthropic.NewToolUseBlock(first[0], map[string]any{"command": "ls"}, "bash"))
	answered := anthropic.NewUserMessage(anthropic.NewToolResultBlock(first[0], "a.txt\nexit code 0", false))
	if _, text, err = askAnthropic(s.URL, "cassette-a", "finish", user, called, answered); err != nil || text != "just text" {
		t.Errorf("second: %q, %v", text, err)
	}
	said := anthropic.NewAssistantMessage(anthropic.NewTextBlock("just text"))
	if _, text, err = askAnthropic(s.URL, "cassette-a", "finish", user, called, answered, said, user); err != nil || !strings.HasPrefix(text, "finish") {
		t.Errorf("third: %q, %v", text, err)
	}
	wrong := anthropic.NewUserMessage(anthropic.NewToolResultBlock(first[0], "exit code 1", true))
	if _, _, err = askAnthropic(s.URL, "cassette-a", "finish", user, called, wrong, said, user); err == nil || !strings.Contains(err.Error(), "expects") {
		t.Errorf("what is not as expected: %v", err)
	}
	if _, text, err = askAnthropic(s.URL, "cassette-a", "report", user); err != nil || text != "the director's" {
		t.Errorf("director: %q, %v", text, err)
	}
	if _, _, err = askAnthropic(s.URL, "cassette-a", "report", user, anthropic.NewAssistantMessage(anthropic.NewTextBlock("the director's")), user); err == nil || !strings.Contains(err.Error(), "no step 2 of the director") {
		t.Errorf("after its end: %v", err)
	}
	for _, model := range []string{"cassette-b", "a"} {
		if _, _, err = askAnthropic(s.URL, model, "report", user); err == nil {
			t.Errorf("%s was played", model)
		}
	}
	if _, _, err = askAnthropic(s.URL, "cassette-a", "neither", user); err == nil {
		t.Error("a request of no loop was answered")
	}
}

// TestACommandInTheBackgroundIsLookedAtUntilItHasEnded shows that a step is played again until its calls
// return what it waits for, and names the handle that the conversation has.
func TestACommandInTheBackgroundIsLookedAtUntilItHasEnded(t *testing.T) {
	t.Parallel()
	p := cassette.NewPlayer()
	p.Put("a", read(t, `{"role":"associate","calls":[{"name":"bash","args":{"command":"make","background":true}}]}
{"role":"associate","calls":[{"name":"bash_output","args":{"handle":"bg1_mark","wait_s":60}}],"until":"bg1_mark has ended"}
{"role":"associate","expect":"bg1_mark has ended, exit code 0","text":"it is over"}
`))
	s := httptest.NewServer(p)
	defer s.Close()
	const look = `bash_output{"handle":"bg1_k7fd","wait_s":60}`
	said := []anthropic.MessageParam{anthropic.NewUserMessage(anthropic.NewTextBlock("go on"))}
	returns := []string{"running in the background as bg1_k7fd", "bg1_k7fd is running, for 60.0 s", "bg1_k7fd is running, for 120.0 s", "bg1_k7fd has ended, exit code 0"}
	wants := []string{`bash{"background":true,"command":"make"}`, look, look, look, "it is over"}
	for i, want := range wants {
		ids, text, err := askAnthropic(s.URL, "cassette-a", "finish", said...)
		var sorted map[string]any
		if name, args, ok := strings.Cut(text, "{"); ok && json.Unmarshal([]byte("{"+args), &sorted) == nil {
			b, _ := json.Marshal(sorted) // came from JSON
			text = name + string(b)
		}
		if err != nil || text != want {
			t.Fatalf("answer %d is %q (%v), want %q", i+1, text, err, want)
		}
		if i < len(returns) {
			said = append(said, anthropic.NewAssistantMessage(anthropic.NewToolUseBlock(ids[0], map[string]any{}, "x")),
				anthropic.NewUserMessage(anthropic.NewToolResultBlock(ids[0], returns[i], false)))
		}
	}
}

// TestTasksOfARunAreToldApart shows that several tasks get their own steps.
func TestTasksOfARunAreToldApart(t *testing.T) {
	t.Parallel()
	p := cassette.NewPlayer()
	p.Put("a", read(t, `{"role":"associate","task":1,"match":"the first","text":"1"}
{"role":"associate","task":2,"match":"the second","text":"2"}
`))
	s := httptest.NewServer(p)
	defer s.Close()
	for goal, want := range map[string]string{"do the second": "2", "do the first": "1"} {
		if _, text, err := askAnthropic(s.URL, "cassette-a", "finish", anthropic.NewUserMessage(anthropic.NewTextBlock(goal))); err != nil || text != want {
			t.Errorf("%s: %q, %v", goal, text, err)
		}
	}
}

// TestBothFormatsArePlayed plays a step to OpenAI's client.
func TestBothFormatsArePlayed(t *testing.T) {
	t.Parallel()
	p := cassette.NewPlayer()
	p.Put("a", read(t, `{"role":"associate","text":"look","calls":[{"name":"bash","args":{"command":"ls"}},{"name":"ls","args":{}}]}
{"role":"associate","text":"done"}
`))
	s := httptest.NewServer(p)
	defer s.Close()
	c := openai.NewChatCompletionService(ooption.WithBaseURL(s.URL+"/v1"), ooption.WithAPIKey("k"), ooption.WithMaxRetries(0))
	ask := func(messages ...openai.ChatCompletionMessageParamUnion) openai.ChatCompletionMessage {
		t.Helper()
		stream := c.NewStreaming(t.Context(), openai.ChatCompletionNewParams{Model: "cassette-a", Messages: messages,
			Tools: []openai.ChatCompletionToolUnionParam{openai.ChatCompletionFunctionTool(openai.FunctionDefinitionParam{Name: "finish"})}})
		var all openai.ChatCompletionAccumulator
		for stream.Next() {
			if !all.AddChunk(stream.Current()) {
				t.Fatal("a chunk does not fit")
			}
		}
		if stream.Err() != nil || len(all.Choices) != 1 || all.Usage.TotalTokens == 0 {
			t.Fatalf("%+v, %v", all, stream.Err())
		}
		return all.Choices[0].Message
	}
	m := ask(openai.UserMessage("go"))
	if m.Content != "look" || len(m.ToolCalls) != 2 || m.ToolCalls[0].Function.Arguments != `{"command":"ls"}` || m.ToolCalls[1].Function.Name != "ls" {
		t.Fatalf("%+v", m)
	}
	var assistant openai.ChatCompletionMessageParamUnion
	if err := json.Unmarshal([]byte(m.RawJSON()), &assistant); err != nil || assistant.OfAssistant == nil {
		assistant = m.ToParam()
	}
	if m = ask(openai.UserMessage("go"), assistant, openai.ToolMessage("a.txt", m.ToolCalls[0].ID), openai.ToolMessage("", m.ToolCalls[1].ID)); m.Content != "done" {
		t.Errorf("%+v", m)
	}
}
