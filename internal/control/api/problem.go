package api

import (
	"net/http"
	"strings"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/fault"
)

// StatusCancelled is the status of a request that was given up.
const StatusCancelled = 499

// statuses maps fault codes to HTTP. An error without a code is a 500.
var statuses = map[fault.Code]int{
	fault.Invalid:     http.StatusUnprocessableEntity,
	fault.NotFound:    http.StatusNotFound,
	fault.Conflict:    http.StatusConflict,
	fault.Denied:      http.StatusForbidden,
	fault.Exhausted:   http.StatusTooManyRequests,
	fault.DiskFull:    http.StatusInsufficientStorage,
	fault.InUse:       http.StatusLocked,
	fault.Newer:       http.StatusConflict,
	fault.Missing:     http.StatusNotImplemented,
	fault.Damaged:     http.StatusInternalServerError,
	fault.Unavailable: http.StatusServiceUnavailable,
	fault.Cancelled:   StatusCancelled,
	fault.Timeout:     http.StatusGatewayTimeout,
	fault.NeedsInput:  http.StatusConflict,
	fault.Unreachable: http.StatusBadGateway,
}

// maxDetail bounds what an error says to a caller, in bytes.
const maxDetail = 2000

// Describe says to a caller what went wrong. What has no code is a fault of
// ours, with code internal: its text may name internals, so it is left out, and
// the caller of Describe logs it.
func Describe(err error) Problem {
	code := fault.CodeOf(err)
	field := contract.AsFieldError(err)
	if field != nil && code == fault.Internal {
		code = fault.Invalid
	}
	p := Problem{Status: statuses[code], Code: string(code), Hint: fault.HintOf(err)}
	if p.Status == 0 {
		p.Status, p.Code = http.StatusInternalServerError, string(fault.Internal)
		p.Detail = "Something went wrong inside; the server's log says what."
	} else {
		p.Detail = message(err)
		if field != nil {
			p.Field = field.Field
		}
	}
	p.Title = StatusTitle(p.Status)
	return p
}

// StatusTitle names a status.
func StatusTitle(status int) string {
	if status == StatusCancelled {
		return "Cancelled"
	}
	return http.StatusText(status)
}

// message is the error's text, bounded.
func message(err error) string {
	s := fault.Text(err)
	if len(s) > maxDetail {
		s = strings.ToValidUTF8(s[:maxDetail], "") + "…"
	}
	return s
}
