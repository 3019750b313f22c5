// Package retry does things again.
package retry

import "errors"

// ErrFinal marks errors after which trying again is of no use.
var ErrFinal = errors.New("final")
