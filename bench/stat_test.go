package bench

import (
	"testing"
	"time"
)

func TestQuantiles(t *testing.T) {
	var all times
	for i := 100; i > 0; i-- {
		all = append(all, time.Duration(i))
	}
	if all.p50() != 51 || all.p(0.99) != 100 || all.p(0) != 1 || times(nil).p50() != 0 || (times{7}).p(0.99) != 7 {
		t.Fatal(all.p50(), all.p(0.99), all.p(0))
	}
}
