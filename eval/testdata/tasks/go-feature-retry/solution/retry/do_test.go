package retry

import (
	"errors"
	"testing"
	"time"
)

func TestDo(t *testing.T) {
	boom := errors.New("boom")
	var slept []time.Duration
	n := 0
	err := Do(3, time.Second, func(d time.Duration) { slept = append(slept, d) }, func() error { n++; return boom })
	if err != boom || n != 3 || len(slept) != 2 || slept[1] != 2*time.Second {
		t.Fatalf("%v after %d tries, slept %v", err, n, slept)
	}
}
