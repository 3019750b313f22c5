package modelserver_test

import (
	"strings"
	"testing"

	anthropic "github.com/anthropics/anthropic-sdk-go"
	openai "github.com/openai/openai-go/v3"

	"choir.dev/choiros/test/modelserver"
)

// TestWhatAVendorsTypeDoesNotReadIsRefused: a field that it does not have is lost in it, wherever it stands.
func TestWhatAVendorsTypeDoesNotReadIsRefused(t *testing.T) {
	t.Parallel()
	for sent, at := range map[string]string{
		`{"model":"m","max_tokens":5,"messages":[{"role":"user","content":[{"type":"text","text":"x"}]}]}`:                "",
		`{"model":"m","max_tokens":5,"messages":[{"role":"user","content":[{"type":"text","text":"x"}]}],"temper":1}`:     ".temper",
		`{"model":"m","max_tokens":5,"messages":[{"role":"user","content":[{"type":"text","text":"x","bold":true}]}]}`:    ".messages[0].content[0].bold",
		`{"model":"m","max_tokens":"five","messages":[{"role":"user","content":[{"type":"text","text":"x"}]}]}`:           ".max_tokens",
		`{"model":"m","max_tokens":5,"messages":[{"role":"user","content":[{"type":"text","text":"x"},{"type":"gif"}]}]}`: ".messages[0].content",
	} {
		_, err := modelserver.Strictly[anthropic.MessageNewParams]([]byte(sent))
		if (err == nil) != (at == "") || err != nil && !strings.Contains(err.Error(), at) {
			t.Errorf("%s: %v", sent, err)
		}
	}
	if _, err := modelserver.Strictly[openai.ChatCompletionNewParams]([]byte(`{"model":"m","messages":[{"role":"tool","content":"x","tool_call_id":"a"}]}`)); err != nil {
		t.Error(err)
	}
	if _, err := modelserver.Strictly[openai.ChatCompletionNewParams]([]byte(`{"model":"m","messages":[{"role":"tool","content":"x","tool_call_id":"a","is_error":true}]}`)); err == nil {
		t.Error("a field of another vendor is taken")
	}
}
