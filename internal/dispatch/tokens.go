package dispatch

import (
	"encoding/json"
	"net/http"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/dispatch/loops"
)

// shown serves a Director's model turns and sends its text, as it arrives, on
// contract.SubjectWords as {"text"}. It is not logged and may be lost.
func (r *run) shown(h http.Handler) http.Handler {
	if r.d.o.Publish == nil {
		return h
	}
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		h.ServeHTTP(loops.TapText(w, func(text string) {
			data, err := json.Marshal(struct {
				Text string `json:"text"`
			}{text})
			if err == nil {
				err = r.d.o.Publish(req.Context(), contract.SubjectWords(r.d.o.CID, r.s.ID), data)
			}
			if err != nil && req.Context().Err() == nil {
				r.d.log.Debug("model text could not be shown", "run", r.s.ID, "error", err)
			}
		}), req)
	})
}
