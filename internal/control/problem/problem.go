package problem

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

// New makes a problem of a refusal; status 0 means the status that belongs to its code.
func New(status int, r view.Refusal) *Error {
	if status == 0 {
		status = httpstatus.Of(fault.Code(r.Code))
	}
	title := http.StatusText(status)
	if status == httpstatus.Cancelled {
		title = "Cancelled"
	}
	return &Error{Problem{Title: title, Status: status, Refusal: r}}
}

// RetryAfter is the Retry-After header, in seconds, of answers that are worth another try.
const RetryAfter = "2"

// Error is a Problem as an error, which huma writes as it is.
type Error struct{ Problem }

// GetHeaders returns the Retry-After header if the request is worth another try.
func (p *Error) GetHeaders() http.Header {
	if p.Code != string(fault.Unavailable) {
		return nil
	}
	return http.Header{"Retry-After": {RetryAfter}}
}

func (p *Error) Error() string                { return p.Detail }
func (p *Error) GetStatus() int               { return p.Status }
func (p *Error) ContentType(string) string    { return "application/problem+json" }
func (p *Error) MarshalJSON() ([]byte, error) { return json.Marshal(p.Problem) }

// Of describes an error to the caller. An error without a code is a defect of ours: its
// text may name internals, so it is logged and not shown.
func Of(log *slog.Logger, what string, err error) *Error {
	var done *Error
	if errors.As(err, &done) {
		return done
	}
	r := view.Describe(err)
	if r.Code == string(fault.Internal) {
		log.Error("request failed", "request", what, "error", err)
	}
	return New(0, r)
}

// Refuse makes a problem without an error behind it.
func Refuse(status int, code fault.Code, detail, hint string) *Error {
	return New(status, view.Refusal{Code: string(code), Detail: detail, Hint: hint})
}

// Write answers a request outside huma.
func Write(w http.ResponseWriter, p *Error) {
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

// RefuseMethod answers that an address takes other methods than the one it was asked with, and says which.
func RefuseMethod(w http.ResponseWriter, detail string, methods ...string) {
	w.Header().Set("Allow", strings.Join(methods, ", "))
	Write(w, Refuse(http.StatusMethodNotAllowed, fault.Invalid, detail, ""))
}

var humaErrors sync.Once

// UseInAPI gives huma's own refusals (unknown field, body too large, …) the form of ours.
// huma keeps the function for it in a package variable.
func UseInAPI() {
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
			return New(status, p)
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

// ErrTooLarge is the error of reading a body that is longer than its limit.
var ErrTooLarge = errors.New("the body is too large")

// TooLarge turns ErrTooLarge into a problem; other errors are returned as they are.
func TooLarge(err error) error {
	return TooLargeTo(err, ErrTooLarge.Error(), "Bring it in by several smaller uploads.")
}

// TooLargeTo is TooLarge with the caller's own detail and hint.
func TooLargeTo(err error, what, hint string) error {
	if errors.Is(err, ErrTooLarge) {
		return Refuse(http.StatusRequestEntityTooLarge, fault.Exhausted, what, hint)
	}
	return err
}
