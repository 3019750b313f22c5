package schema_test

import (
	"encoding/json"
	"strings"
	"testing"

	"choir.dev/choiros/internal/harness/schema"
)

const example = `{"type":"object","additionalProperties":false,"required":["path"],"properties":{
	"path":{"type":"string","minLength":1,"maxLength":5},
	"n":{"type":"integer","minimum":1,"maximum":9},
	"kind":{"type":"string","enum":["a","b"]},
	"list":{"type":"array","maxItems":2,"items":{"type":"object","required":["x"],"properties":{"x":{"type":"boolean"}}}}}}`

func TestValidate(t *testing.T) {
	s, err := schema.Compile(json.RawMessage(example))
	if err != nil {
		t.Fatal(err)
	}
	for in, want := range map[string]string{
		`{"path":"a"}`: "", `{"path":"a","n":3,"kind":"b","list":[{"x":true}]}`: "",
		`{}`: "path: is required", `{"path":""}`: "path: is 0", `{"path":"abcdef"}`: "path: is 6",
		`{"path":1}`: "path: is a number", `{"path":null}`: "path: is null", `{"path":"a","z":1}`: "z: is not a known field",
		`{"path":"a","n":0}`: "n: is 0", `{"path":"a","n":1.5}`: "n: 1.5 is not a whole", `{"path":"a","n":1e99}`: "n: 1e99 is not a whole",
		`{"path":"a","kind":"c"}`: `kind: is "c"`, `{"path":"a","list":[{}]}`: "list[0].x: is required",
		`{"path":"a","list":[{"x":1}]}`: "list[0].x: is a number", `{"path":"a","list":[1,2,3]}`: "list: has 3", `[]`: "arguments: is an array",
		`{"path":"a"} x`: "after the JSON", `nope`: "not valid JSON", "{\"path\":\"\xff\"}": "UTF-8",
	} {
		err := s.Validate(json.RawMessage(in))
		if (err == nil) != (want == "") || (err != nil && !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: got %v, want %q", in, err, want)
		}
	}
}

func TestCompileRefusesWhatItCantEnforce(t *testing.T) {
	for _, s := range []string{`{"type":"object","pattern":"x"}`, `{"type":"thing"}`, `{}`, `{"type":"array"}`, `{"type":"object","required":["x"]}`} {
		if _, err := schema.Compile(json.RawMessage(s)); err == nil {
			t.Errorf("%s compiled", s)
		}
	}
}

func FuzzValidate(f *testing.F) {
	s, err := schema.Compile(json.RawMessage(example))
	if err != nil {
		f.Fatal(err)
	}
	f.Add([]byte(`{"path":"a","list":[{"x":true}]}`))
	f.Add([]byte("{\"path\":\"\xff\",\"n\":1e400}"))
	f.Fuzz(func(t *testing.T, b []byte) {
		if s.Validate(b) == nil && !json.Valid(b) {
			t.Fatalf("accepted %q", b)
		}
	})
}
