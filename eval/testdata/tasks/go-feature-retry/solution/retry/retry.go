// Package retry does things again.
package retry

import (
	"errors"
	"time"
)

// ErrFinal marks errors after which trying again is of no use.
var ErrFinal = errors.New("final")

// Do calls act until it succeeds, at most attempts times (at least once), and sleeps between tries,
// twice as long each time. An error that wraps ErrFinal ends it at once.
func Do(attempts int, pause time.Duration, sleep func(time.Duration), act func() error) error {
	var err error
	for i := range max(attempts, 1) {
		if i > 0 {
			sleep(pause)
			pause *= 2
		}
		if err = act(); err == nil || errors.Is(err, ErrFinal) {
			return err
		}
	}
	return err
}
