package retry

import (
	"errors"
	"fmt"
	"reflect"
	"testing"
	"time"
)

func TestHiddenDo(t *testing.T) {
	boom := errors.New("boom")
	for _, c := range []struct {
		attempts int
		errs     []error
		tries    int
		slept    []time.Duration
		want     error
	}{
		{3, []error{boom, boom, boom}, 3, []time.Duration{1, 2}, boom},
		{5, []error{boom, nil}, 2, []time.Duration{1}, nil},
		{0, []error{boom}, 1, nil, boom},
		{5, []error{fmt.Errorf("x: %w", ErrFinal)}, 1, nil, ErrFinal},
		{1, []error{nil}, 1, nil, nil},
	} {
		var slept []time.Duration
		n := 0
		err := Do(c.attempts, 1, func(d time.Duration) { slept = append(slept, d) }, func() error { n++; return c.errs[n-1] })
		if !errors.Is(err, c.want) || (c.want == nil) != (err == nil) || n != c.tries || !reflect.DeepEqual(slept, c.slept) {
			t.Errorf("%+v: %v after %d tries, slept %v", c, err, n, slept)
		}
	}
}
