package rpc_test

import (
	"strings"
	"testing"

	"choir.dev/choiros/internal/rpc"
)

// TestAnAnswerIsReadStrictly: what a server of ours never says is not guessed at.
func TestAnAnswerIsReadStrictly(t *testing.T) {
	type answer struct {
		Name string `json:"name"`
	}
	for text, want := range map[string]string{
		`{"name":"one","new":{"later":true}}`: "one", // of a newer server
		`{"Name":"one"}`:                      "",
		"{}\n":                                "",
	} {
		var got answer
		if err := rpc.Decode(strings.NewReader(text), &got); err != nil || got.Name != want {
			t.Errorf("%s is %+v, %v", text, got, err)
		}
	}
	for _, text := range []string{`{"name":"one","name":"two"}`, "{\"name\":\"\xff\"}", `{"name":"one"}{}`, `{"name":"one"`, ``} {
		var got answer
		if err := rpc.Decode(strings.NewReader(text), &got); err == nil {
			t.Errorf("%q is %+v", text, got)
		}
	}
}
