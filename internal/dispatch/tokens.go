package dispatch

import (
	"bytes"
	"encoding/json"
	"net/http"

	"choir.dev/choiros/contract"
)

// shown serves a Director's model turns and sends its text, as it arrives, on
// contract.SubjectWords as {"text"}. It is not logged and may be lost.
func (r *run) shown(h http.Handler) http.Handler {
	if r.d.o.Publish == nil {
		return h
	}
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		h.ServeHTTP(&textTap{ResponseWriter: w, show: func(text string) {
			data, err := json.Marshal(struct {
				Text string `json:"text"`
			}{text})
			if err == nil {
				err = r.d.o.Publish(req.Context(), contract.SubjectWords(r.d.o.CID, r.s.ID), data)
			}
			if err != nil && req.Context().Err() == nil {
				r.d.log.Debug("model text could not be shown", "run", r.s.ID, "error", err)
			}
		}}, req)
	})
}

// textTap passes NDJSON of contract.TurnChunk on and shows the deltas in it.
type textTap struct {
	http.ResponseWriter
	line []byte
	show func(text string)
}

// maxTapped bounds a line that is looked at; a turn is longer, and is no delta.
const maxTapped = 64 << 10

// Unwrap lets an http.ResponseController flush and set deadlines.
func (t *textTap) Unwrap() http.ResponseWriter { return t.ResponseWriter }

func (t *textTap) Write(p []byte) (int, error) {
	n, err := t.ResponseWriter.Write(p)
	for rest := p[:n]; len(rest) > 0; {
		part, after, whole := bytes.Cut(rest, []byte("\n"))
		if len(t.line) <= maxTapped {
			t.line = append(t.line, part[:min(len(part), maxTapped+1)]...)
		}
		if !whole {
			break
		}
		var c contract.TurnChunk
		if len(t.line) <= maxTapped && json.Unmarshal(t.line, &c) == nil && c.Delta != "" {
			t.show(c.Delta)
		}
		t.line, rest = t.line[:0], after
	}
	return n, err
}
