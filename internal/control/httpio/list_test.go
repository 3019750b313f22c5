package httpio_test

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"choir.dev/choiros/internal/control/httpio"
)

type item struct {
	Name string `json:"name"`
	Size int    `json:"size,omitempty"`
}

// loud has a MarshalJSON that only its address has, as an element of a list has one.
type loud string

func (l *loud) MarshalJSON() ([]byte, error) { return json.Marshal(strings.ToUpper(string(*l))) }

// whole is a list that says itself how it is written.
type whole []string

func (w whole) MarshalJSON() ([]byte, error) { return json.Marshal(strings.Join(w, "+")) }

// TestAListIsWrittenAsJSONWritesIt compares what is sent in pieces with what the encoder
// makes of the whole.
func TestAListIsWrittenAsJSONWritesIt(t *testing.T) {
	long := make([]item, 5000)
	for i := range long {
		long[i] = item{strings.Repeat("a <line> & \"words\" of a document, ü\n\x00\xff\u2028", i%7), i % 3}
	}
	number := 7
	for name, v := range map[string]any{
		"nothing": nil, "no list": item{"x", 1}, "an empty one": []item{}, "none": []item(nil), "one": []item{{"a", 0}}, "a long one": long,
		"of pointers": []*int{&number, nil}, "of anything": []any{1, "two", nil, []item{{"three", 3}}}, "bytes": []byte("abc"),
		"who writes themselves": []loud{"a", "b"}, "which writes itself": whole{"a", "b"}, "raw": json.RawMessage(`{"a":1}`), "of raw": []json.RawMessage{[]byte(`{"a": 1}`)},
	} {
		var want, got bytes.Buffer
		e := json.NewEncoder(&want)
		e.SetEscapeHTML(false)
		if err := e.Encode(v); err != nil {
			t.Fatal(name, err)
		}
		if err := httpio.WriteJSON(&got, v); err != nil || !bytes.Equal(got.Bytes(), want.Bytes()) {
			t.Errorf("%s: %d bytes %.200q, %v; want %d bytes %.200q", name, got.Len(), got.Bytes(), err, want.Len(), want.Bytes())
		}
	}
	if err := httpio.WriteJSON(&bytes.Buffer{}, []any{1, func() {}}); err == nil {
		t.Error("a function was written as JSON")
	}
}

// counting counts what was written to it.
type counting struct{ bytes int }

func (c *counting) Write(p []byte) (int, error) { c.bytes += len(p); return len(p), nil }

// asking is written as how much had been sent by then.
type asking struct {
	to   *counting
	sent *int
}

func (a asking) MarshalJSON() ([]byte, error) {
	*a.sent = a.to.bytes
	return json.Marshal(strings.Repeat("x", 100<<10))
}

// TestTheReaderOfAListHasItsBeginningEarly shows that the end of a long list is encoded when
// its beginning has been sent.
func TestTheReaderOfAListHasItsBeginningEarly(t *testing.T) {
	var to counting
	var sent int
	if err := httpio.WriteJSON(&to, []asking{{&to, &sent}, {&to, &sent}}); err != nil {
		t.Fatal(err)
	}
	if sent < 100<<10 {
		t.Errorf("%d bytes had been sent when the last one was encoded", sent)
	}
}
