package schema_test

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"pgregory.net/rapid"

	"choir.dev/choiros/internal/associate"
	"choir.dev/choiros/internal/director"
	"choir.dev/choiros/internal/tool/boxtools"
	"choir.dev/choiros/internal/tool/schema"
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

// TestAgreesWithAnotherValidator shows that a value that this validator accepts is accepted by a
// common JSON Schema library too, and the reverse, with two exceptions: lengths are in bytes here,
// and 1.0 is no integer.
func TestAgreesWithAnotherValidator(t *testing.T) {
	seen := map[bool]int{}
	for _, d := range append(append(boxtools.Declared(), associate.Declared()...), director.Declared([]string{"read", "bash"}, []string{"helper"})...) {
		ours, err := schema.Compile(d.Schema)
		if err != nil {
			t.Fatal(d.Name, err)
		}
		doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(d.Schema))
		if err != nil {
			t.Fatal(d.Name, err)
		}
		c := jsonschema.NewCompiler()
		if err := c.AddResource("mem:///tool.json", doc); err != nil {
			t.Fatal(d.Name, err)
		}
		theirs, err := c.Compile("mem:///tool.json")
		if err != nil {
			t.Fatal(d.Name, err)
		}
		t.Run(d.Name, func(t *testing.T) {
			rapid.Check(t, func(rt *rapid.T) {
				raw, err := json.Marshal(value(rt, doc.(map[string]any)))
				if err != nil {
					rt.Fatal(err)
				}
				v, err := jsonschema.UnmarshalJSON(bytes.NewReader(raw))
				if err != nil {
					rt.Fatal(err)
				}
				a, b := ours.Validate(raw), theirs.Validate(v)
				if (a == nil) != (b == nil) {
					rt.Fatalf("%s\nhere: %v\nthere: %v", raw, a, b)
				}
				seen[a == nil]++
			})
		})
	}
	if seen[true] < 100 || seen[false] < 20 {
		t.Errorf("%d accepted, %d refused: too few of one", seen[true], seen[false])
	}
}

// chance is rarely true; it compares with 50 because the generator prefers small numbers.
func chance(t *rapid.T) bool { return rapid.IntRange(0, 99).Draw(t, "chance") == 50 }

// value draws mostly what the schema wants, and sometimes something else.
func value(t *rapid.T, s map[string]any) any {
	kind, _ := s["type"].(string)
	if chance(t) {
		kind = rapid.SampledFrom([]string{"object", "array", "string", "integer", "number", "boolean", "null"}).Draw(t, "kind")
	}
	switch kind {
	case "object":
		out := map[string]any{}
		required, _ := s["required"].([]any)
		properties, _ := s["properties"].(map[string]any)
		names := slices.Sorted(maps.Keys(properties))
		for _, name := range names {
			if slices.Contains(required, any(name)) && !chance(t) || rapid.IntRange(0, 3).Draw(t, "has") == 2 {
				out[name] = value(t, properties[name].(map[string]any))
			}
		}
		if chance(t) {
			out["more"] = 1
		}
		return out
	case "array":
		items, _ := s["items"].(map[string]any)
		out := []any{}
		for range rapid.IntRange(0, 3).Draw(t, "items") {
			out = append(out, value(t, items))
		}
		return out
	case "string":
		if list, ok := s["enum"].([]any); ok && !chance(t) {
			return rapid.SampledFrom(list).Draw(t, "enum")
		}
		text := rapid.StringMatching(`[ -~]{0,20}`).Draw(t, "text")
		if n, ok := s["maxLength"].(json.Number); ok && chance(t) {
			if max, err := n.Int64(); err == nil && max <= 1<<13 {
				text = strings.Repeat("x", int(max)+rapid.IntRange(0, 1).Draw(t, "over"))
			}
		}
		return text
	case "integer":
		return rapid.IntRange(-3, 100_000).Draw(t, "integer")
	case "number":
		return rapid.Float64Range(-3, 3).Draw(t, "number")
	case "boolean":
		return rapid.Bool().Draw(t, "boolean")
	}
	return nil
}
