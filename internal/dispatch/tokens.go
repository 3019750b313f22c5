package dispatch

import (
	"encoding/json"
	"net/http"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/dispatch/loops"
)

// shown serves a Director's model turns and publishes their text, as it arrives, on contract.SubjectWords
// as {"text"}. The text is not logged and may be lost.
func (r *run) shown(h http.Handler) http.Handler {
	if r.dispatcher.options.Publish == nil {
		return h
	}
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		h.ServeHTTP(loops.TeeText(w, func(text string) {
			data, err := json.Marshal(struct {
				Text string `json:"text"`
			}{text})
			if err == nil {
				err = r.dispatcher.options.Publish(req.Context(), contract.SubjectWords(r.dispatcher.options.CID, r.story.ID), data)
			}
			if err != nil && req.Context().Err() == nil {
				r.dispatcher.log.Debug("model text could not be shown", "run", r.story.ID, "error", err)
			}
		}), req)
	})
}
