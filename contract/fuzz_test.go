package contract_test

import (
	"bytes"
	"encoding/json"
	"reflect"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/santhosh-tekuri/jsonschema/v6"
	"pgregory.net/rapid"

	"choir.dev/choiros/contract"
)

// fuzz checks that a decoder never panics, that what it accepts can be encoded and decoded again
// without a difference, and that the published schema accepts it too.
func fuzz(t *testing.T, m message, s *jsonschema.Schema, raw []byte) {
	v, err := m.decode(raw)
	if err != nil {
		return
	}
	if err := conforms(s, raw); err != nil {
		t.Fatalf("the schema refuses what the decoder takes: %v\n%s", err, raw)
	}
	again, err := m.decode(encode(t, v))
	if err != nil {
		t.Fatalf("what was accepted is refused once encoded: %v\n%s", err, raw)
	}
	if d := cmp.Diff(v, again, cmpopts.EquateEmpty()); d != "" {
		t.Fatalf("changed on the way: %s\n%s", d, raw)
	}
}

// seeds returns a few valid messages of a type.
func seeds(t testing.TB, typ reflect.Type) [][]byte {
	draw := rapid.Custom(func(t *rapid.T) []byte {
		return encode(t, arbitrary(t, typ, contract.Rule{}, 0).Interface())
	})
	var out [][]byte
	for i := range 4 {
		out = append(out, draw.Example(i))
	}
	return out
}

func fuzzOne(f *testing.F, name string) {
	for _, m := range messages() {
		if m.schema != name {
			continue
		}
		s := compile(f, name)
		for _, seed := range seeds(f, m.typ) {
			f.Add(seed)
		}
		f.Add([]byte(`{"a":{"b":[{}]}}`))
		f.Fuzz(func(t *testing.T, raw []byte) { fuzz(t, m, s, raw) })
		return
	}
	f.Fatalf("no message has the schema %s", name)
}

func FuzzUnmarshalEvent(f *testing.F)    { fuzzOne(f, "event.json") }
func FuzzDecodeTask(f *testing.F)        { fuzzOne(f, "director-task.json") }
func FuzzDecodeResult(f *testing.F)      { fuzzOne(f, "associate-result.json") }
func FuzzDecodeTurnRequest(f *testing.F) { fuzzOne(f, "turn-request.json") }
func FuzzDecodeTurnChunk(f *testing.F)   { fuzzOne(f, "turn-chunk.json") }
func FuzzDecodeTheme(f *testing.F)       { fuzzOne(f, "theme.json") }

// FuzzDecodeData covers the data of every event type.
func FuzzDecodeData(f *testing.F) {
	types := contract.Types()
	byType := map[string]message{}
	compiled := map[string]*jsonschema.Schema{}
	for i, info := range types {
		name := "data/" + info.Type + ".json"
		for _, m := range messages() {
			if m.schema == name {
				byType[info.Type], compiled[info.Type] = m, compile(f, name)
				for _, seed := range seeds(f, m.typ) {
					f.Add(uint8(i), seed)
				}
			}
		}
	}
	f.Fuzz(func(t *testing.T, which uint8, raw []byte) {
		typ := types[int(which)%len(types)].Type
		if len(raw) == 0 { // empty data decode as {}, which is not the text that was validated
			return
		}
		fuzz(t, byType[typ], compiled[typ], raw)
	})
}

// FuzzDigest shows that the digest of data in any spelling equals that of the same data made
// compact by encoding/json.
func FuzzDigest(f *testing.F) {
	for _, s := range []string{`{"a":"b c"}`, ` { "a" : "\\\" , " , "b":[ 1 ,\t2\r\n] } `, `"\\"`, `"\\\\" `, "\"\u2028 <\"", `[]`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var compact bytes.Buffer
		if !utf8.Valid(data) || json.Compact(&compact, data) != nil {
			t.Skip("events hold nothing but valid JSON")
		}
		loose, tight := contract.Event{ID: "e", Data: data}, contract.Event{ID: "e", Data: compact.Bytes()}
		if contract.Digest(loose) != contract.Digest(tight) {
			t.Fatalf("%q has another digest than %q", data, compact.Bytes())
		}
		if other := (contract.Event{ID: "e", Data: append([]byte("0"), compact.Bytes()...)}); contract.Digest(other) == contract.Digest(tight) {
			t.Fatal("other data have the same digest")
		}
	})
}
