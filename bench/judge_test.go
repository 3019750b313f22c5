package bench

import (
	"strings"
	"testing"
	"time"
)

func TestJudge(t *testing.T) {
	ms := func(v float64) *Quantity { return &Quantity{v, "ms"} }
	for _, c := range []struct {
		name  string
		r     Result
		met   bool
		shown string
	}{
		{"absolute, within", Result{Ours: ms(3), Target: atMost(ofOurs, 3, "ms")}, true, "≤ 3 ms"},
		{"absolute, beyond", Result{Ours: ms(3.1), Target: atMost(ofOurs, 3, "ms")}, false, "≤ 3 ms"},
		{"added, within", Result{Ours: ms(9), Raw: ms(7.5), Target: atMost(ofAdded, 2, "ms")}, true, "+ 1.50 ms"},
		{"added, beyond", Result{Ours: ms(9.6), Raw: ms(7.5), Target: atMost(ofAdded, 2, "ms")}, false, "+ 2.10 ms"},
		{"faster than raw", Result{Ours: ms(1), Raw: ms(2), Target: atMost(ofAdded, 2, "ms")}, true, "+ 0.00 ms"},
		{"ratio, within", Result{Ours: ms(1), Raw: ms(1), Ratio: 0.8, Target: atLeast(ofRatio, 0.8, "×")}, true, "≥ 0.8 ×"},
		{"ratio, below", Result{Ours: ms(1), Raw: ms(1), Ratio: 0.79, Target: atLeast(ofRatio, 0.8, "×")}, false, "0.79 ×"},
		{"ratio, above", Result{Ours: ms(1), Raw: ms(1), Ratio: 1.6, Target: atMost(ofRatio, 1.5, "×")}, false, "1.60 ×"},
	} {
		r := c.r.judge()
		r.What = c.name
		if r.Met == nil || *r.Met != c.met {
			t.Errorf("%s: met %v", c.name, r.Met)
			continue
		}
		page := Report{Results: []Result{r}}.Markdown()
		if miss := strings.Contains(page, "**no**"); miss == c.met || !strings.Contains(page, c.shown) {
			t.Errorf("%s: shown as\n%s", c.name, page)
		}
	}
	if r := (Result{What: "x"}).judge(); r.Met != nil {
		t.Error("something that was not measured is judged")
	}
	if r := (Result{Ours: ms(1)}).judge(); r.Met != nil {
		t.Error("something without a target is judged")
	}
}

func TestQuantiles(t *testing.T) {
	var all times
	for i := 100; i > 0; i-- {
		all = append(all, time.Duration(i))
	}
	if all.p50() != 51 || all.p(0.99) != 100 || all.p(0) != 1 || times(nil).p50() != 0 || (times{7}).p(0.99) != 7 {
		t.Fatal(all.p50(), all.p(0.99), all.p(0))
	}
}
