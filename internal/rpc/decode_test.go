package rpc_test

import (
	"strings"
	"testing"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/rpc"
)

// TestAnAnswerIsReadStrictly shows that spellings that no server of ours uses are errors.
func TestAnAnswerIsReadStrictly(t *testing.T) {
	type answer struct {
		Name string `json:"name"`
	}
	for text, want := range map[string]string{
		`{"name":"one","new":{"later":true}}`: "one", // a newer server may send further fields
		`{"Name":"one"}`:                      "",
		"{}\n":                                "",
	} {
		var got answer
		if err := rpc.Decode(strings.NewReader(text), &got); err != nil || got.Name != want {
			t.Errorf("%s is %+v, %v", text, got, err)
		}
	}
	for _, text := range []string{`{"name":"one"}{}`, `{"name":"one"`, ``} {
		var got answer
		if err := rpc.Decode(strings.NewReader(text), &got); err == nil {
			t.Errorf("%q is %+v", text, got)
		}
	}
}

// TestWhatAModelWroteIsRead: events keep arguments as the model wrote them, so an answer
// may contain such ones.
func TestWhatAModelWroteIsRead(t *testing.T) {
	for _, args := range []string{`{"text":"cut in two \ud83d"}`, `{"path":"a","path":"b"}`} {
		data := `{"call":"c","name":"write","args":` + args + `,"read_only":false,"attempt":1}`
		if _, err := contract.DecodeData("tool.called", []byte(data)); err != nil {
			t.Fatalf("an event can't hold it: %v", err)
		}
		var got []contract.Event
		if err := rpc.Decode(strings.NewReader(`[{"id":"1","data":`+data+`},{"id":"2"}]`), &got); err != nil || len(got) != 2 || string(got[0].Data) != data {
			t.Errorf("%s is read as %+v, %v", args, got, err)
		}
	}
}
