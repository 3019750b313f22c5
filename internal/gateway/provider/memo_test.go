package provider_test

import (
	"encoding/json"
	"hash/maphash"
	"testing"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/gateway/provider"
)

// parts returns parts of every kind, with each value of a few in each field.
func parts() (out []contract.Part) {
	words, flags := []string{"", "a", "b", "ab"}, []bool{false, true}
	add := func(p contract.Part) { out = append(out, p) }
	picture := func(media, ref string) contract.Image {
		return contract.Image{Media: media, Ref: contract.BlobRef(ref)}
	}
	for _, a := range words {
		add(contract.Part{Text: a})
		for _, b := range words {
			i := picture(a, b)
			add(contract.Part{Image: &i})
			for _, flag := range flags {
				for n := range 3 {
					add(contract.Part{Call: &contract.ToolCall{ID: a, Name: b, Args: json.RawMessage([]string{"{}", "{ }", `{"a":1}`}[n]), Cut: flag}})
					add(contract.Part{Call: &contract.ToolCall{ID: a, Name: b, Args: json.RawMessage(`[]`), Cut: flag, Arrived: int64(n)}})
					images := [][]contract.Image{nil, {picture("m", "a")}, {picture("m", "a"), picture("m", "b")}}[n]
					add(contract.Part{Return: &contract.ToolReturn{ID: a, Content: b, IsError: flag, Images: images}})
				}
				for _, c := range words {
					add(contract.Part{Reasoning: &contract.Reasoning{Provider: a, Text: b, ID: c, Hidden: flag}})
					add(contract.Part{Reasoning: &contract.Reasoning{Provider: "p", Text: a, ID: b, Opaque: "o" + c, Hidden: flag}})
				}
			}
		}
	}
	return out
}

// TestPartsThatDifferHaveOtherSums: what is kept of one part is never taken for another, nor is what a loop says anew for what it repeats.
func TestPartsThatDifferHaveOtherSums(t *testing.T) {
	seed, seen := maphash.MakeSeed(), map[uint64]int{}
	all := parts()
	for i, p := range all {
		var h maphash.Hash
		h.SetSeed(seed)
		provider.WritePart(&h, p)
		if other, ok := seen[h.Sum64()]; ok {
			x, _ := json.Marshal(p)
			y, _ := json.Marshal(all[other])
			t.Fatalf("%s has the sum of %s", x, y)
		}
		seen[h.Sum64()] = i
	}
}

// TestToolsAreKeptByWire: a loop whose model is switched to another wire sends its tools in that one's form.
func TestToolsAreKeptByWire(t *testing.T) {
	m, tools := provider.NewMemo(), []contract.ToolSpec{{Name: "a"}}
	for i, wire := range []string{"one", "other", "one", "one"} {
		got, err := m.Tools(tools, wire, func(int) (json.Marshaler, error) { return json.RawMessage(`"` + wire + `"`), nil })
		if want := `["` + wire + `"]`; err != nil || string(got) != want {
			t.Errorf("%d: %s, not %s (%v)", i, got, want, err)
		}
	}
}
