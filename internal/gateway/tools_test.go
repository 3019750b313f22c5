package gateway_test

import (
	"encoding/json"
	"reflect"
	"testing"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/associate"
	"choir.dev/choiros/internal/director"
	"choir.dev/choiros/internal/tool"
	"choir.dev/choiros/internal/tool/boxtools"
	"choir.dev/choiros/test/modelserver"
)

// TestDeclarationsArriveInEachFormat shows that every tool that a model is offered arrives as it
// is declared, in both wire formats.
func TestDeclarationsArriveInEachFormat(t *testing.T) {
	r, err := tool.NewRegistry(append(append(boxtools.Declared(), associate.Declared()...), director.Declared([]string{"read"}, nil)...)...)
	if err != nil {
		t.Fatal(err)
	}
	var specs []contract.ToolSpec
	for _, c := range []tool.Caller{tool.Agent, tool.Director} {
		for _, d := range r.For(c) {
			if c == tool.Director && d.For(tool.Agent) {
				continue // both loops have it
			}
			specs = append(specs, d.Spec())
		}
	}
	type declared struct {
		Name, Description string
		Schema            any
	}
	read := func(raw []byte) (v any) {
		if err := json.Unmarshal(raw, &v); err != nil {
			t.Fatalf("%s: %v", raw, err)
		}
		return v
	}
	var want []declared
	for _, s := range specs {
		want = append(want, declared{s.Name, s.Description, read(s.Schema)})
	}
	each(t, func(t *testing.T, wire modelserver.Wire) {
		g, s, _ := play(t, wire, nil, modelserver.Turn{Text: "ok"})
		req := say("hello")
		req.Tools = specs
		if _, err := g.Turn(t.Context(), scope(), req, nil); err != nil {
			t.Fatal(err)
		}
		var sent struct {
			Tools []struct {
				Name        string          `json:"name"`
				Description string          `json:"description"`
				InputSchema json.RawMessage `json:"input_schema"`
				Parameters  json.RawMessage `json:"parameters"`
				Function    struct {
					Name        string          `json:"name"`
					Description string          `json:"description"`
					Parameters  json.RawMessage `json:"parameters"`
				} `json:"function"`
			} `json:"tools"`
		}
		if err := json.Unmarshal(s.Requests()[0].Body, &sent); err != nil {
			t.Fatal(err)
		}
		var got []declared
		for _, d := range sent.Tools {
			switch wire {
			case modelserver.Anthropic, modelserver.Bedrock:
				got = append(got, declared{d.Name, d.Description, read(d.InputSchema)})
			case modelserver.Responses:
				got = append(got, declared{d.Name, d.Description, read(d.Parameters)})
			default:
				got = append(got, declared{d.Function.Name, d.Function.Description, read(d.Function.Parameters)})
			}
		}
		if len(got) != len(want) || len(want) != 19 {
			t.Fatalf("%d tools, want %d, which are 19", len(got), len(want))
		}
		for i := range want {
			if !reflect.DeepEqual(got[i], want[i]) {
				t.Errorf("got\n%+v\nwant\n%+v", got[i], want[i])
			}
		}
	})
}
