package control

import (
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"strings"
	"sync"

	"github.com/danielgtaylor/huma/v2"

	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/fault/httpstatus"
	"choir.dev/choiros/internal/view"
)

// Problem is a refusal in the form of RFC 9457.
type Problem struct {
	Type   string `json:"type,omitempty"`
	Title  string `json:"title"`
	Status int    `json:"status"`
	view.Refusal
}

// newProblem puts a refusal into HTTP; status 0 is the one of its code.
func newProblem(status int, r view.Refusal) *problem {
	if status == 0 {
		status = httpstatus.Of(fault.Code(r.Code))
	}
	title := http.StatusText(status)
	if status == httpstatus.Cancelled {
		title = "Cancelled"
	}
	return &problem{Problem{Title: title, Status: status, Refusal: r}}
}

// retryAfter is what an answer that is worth another try says, in seconds.
const retryAfter = "2"

// problem is a Problem as an error that huma writes as it stands.
type problem struct{ Problem }

// GetHeaders says when an answer is worth another try.
func (p *problem) GetHeaders() http.Header {
	if p.Code != string(fault.Unavailable) {
		return nil
	}
	return http.Header{"Retry-After": {retryAfter}}
}

func (p *problem) Error() string                { return p.Detail }
func (p *problem) GetStatus() int               { return p.Status }
func (p *problem) ContentType(string) string    { return "application/problem+json" }
func (p *problem) MarshalJSON() ([]byte, error) { return json.Marshal(p.Problem) }

// problemOf describes an error to the caller. What has no code is a fault of
// ours: its text may name internals, so it is logged and not shown.
func problemOf(log *slog.Logger, what string, err error) *problem {
	var done *problem
	if errors.As(err, &done) {
		return done
	}
	r := view.Describe(err)
	if r.Code == string(fault.Internal) {
		log.Error("request failed", "request", what, "error", err)
	}
	return newProblem(0, r)
}

// refusal makes a problem of its own.
func refusal(status int, code fault.Code, detail, hint string) *problem {
	return newProblem(status, view.Refusal{Code: string(code), Detail: detail, Hint: hint})
}

// writeProblem answers a request outside huma.
func writeProblem(w http.ResponseWriter, p *problem) {
	b, err := json.Marshal(p.Problem)
	if err != nil {
		w.WriteHeader(http.StatusInternalServerError)
		return
	}
	h := w.Header()
	h.Set("Content-Type", "application/problem+json")
	h.Set("Cache-Control", "no-store")
	for name, values := range p.GetHeaders() {
		h[name] = values
	}
	w.WriteHeader(p.Status)
	_, _ = w.Write(b) // the client has gone if this fails
}

var humaErrors sync.Once

// useProblems makes huma's own refusals (unknown field, body too large, …)
// look like ours. huma keeps this in a package variable.
func useProblems() {
	humaErrors.Do(func() {
		huma.NewError = func(status int, msg string, errs ...error) huma.StatusError {
			p := view.Refusal{Detail: msg, Code: string(codeOf(status))}
			for _, err := range errs {
				d, ok := err.(huma.ErrorDetailer)
				if !ok {
					continue
				}
				detail := d.ErrorDetail()
				p.Field = strings.TrimPrefix(strings.TrimPrefix(detail.Location, "body"), ".")
				for _, in := range []string{"query.", "path.", "header."} {
					p.Field = strings.TrimPrefix(p.Field, in)
				}
				p.Detail = detail.Message
				if p.Field != "" {
					p.Detail = p.Field + ": " + detail.Message
				}
				break
			}
			return newProblem(status, p)
		}
	})
}

func codeOf(status int) fault.Code {
	switch {
	case status == http.StatusNotFound:
		return fault.NotFound
	case status == http.StatusRequestTimeout:
		return fault.Timeout
	case status >= 500:
		return fault.Internal
	}
	return fault.Invalid
}
