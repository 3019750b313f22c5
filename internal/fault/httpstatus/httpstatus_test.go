package httpstatus_test

import (
	"testing"

	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/fault/httpstatus"
)

func TestCodesAndStatuses(t *testing.T) {
	for code, want := range map[fault.Code]int{fault.Invalid: 422, fault.DiskFull: 507, fault.Unavailable: 503, fault.Conflict: 409, fault.Newer: 409, fault.Damaged: 500, "unheard": 500} {
		if got := httpstatus.Of(code); got != want {
			t.Errorf("%s is %d; want %d", code, got, want)
		}
	}
	for status, want := range map[int]fault.Code{409: fault.Conflict, 423: fault.InUse, 404: fault.NotFound, 500: fault.Internal, 418: fault.Internal} {
		if got := httpstatus.Code(status); got != want {
			t.Errorf("%d is %s; want %s", status, got, want)
		}
	}
}
