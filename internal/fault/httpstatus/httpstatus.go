// Package httpstatus is the only table of the HTTP status for each error code, for the
// control plane, the guest in a box, and the keeper.
package httpstatus

import (
	"net/http"

	"choir.dev/choiros/internal/fault"
)

// Cancelled is the status of a request that its client has cancelled; HTTP defines none.
const Cancelled = 499

// table is searched in this order when a status is turned back into a code.
var table = []struct {
	code   fault.Code
	status int
}{
	{fault.Invalid, http.StatusUnprocessableEntity},
	{fault.NotFound, http.StatusNotFound},
	{fault.Conflict, http.StatusConflict},
	{fault.Denied, http.StatusForbidden},
	{fault.Exhausted, http.StatusTooManyRequests},
	{fault.DiskFull, http.StatusInsufficientStorage},
	{fault.InUse, http.StatusLocked},
	{fault.Newer, http.StatusConflict},
	{fault.Missing, http.StatusNotImplemented},
	{fault.Damaged, http.StatusInternalServerError},
	{fault.Unavailable, http.StatusServiceUnavailable},
	{fault.Cancelled, Cancelled},
	{fault.Timeout, http.StatusGatewayTimeout},
	{fault.NeedsInput, http.StatusConflict},
	{fault.Unreachable, http.StatusBadGateway},
}

// Of returns a code's status; 500 for one that has none.
func Of(code fault.Code) int {
	for _, e := range table {
		if e.code == code {
			return e.status
		}
	}
	return http.StatusInternalServerError
}

// Code returns the code for a status whose body does not contain one: the first in the
// table with that status, or Internal.
func Code(status int) fault.Code {
	for _, e := range table {
		if e.status == status && e.code != fault.Damaged {
			return e.code
		}
	}
	return fault.Internal
}
