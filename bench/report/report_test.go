package report

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"choir.dev/choiros/internal/fault"
)

func TestJudge(t *testing.T) {
	ms := func(v float64) *Quantity { return &Quantity{v, "ms"} }
	for _, c := range []struct {
		name  string
		r     Result
		met   bool
		shown string
	}{
		{"absolute, within", Result{Ours: ms(3), Target: AtMost(OfOurs, 3, "ms")}, true, "≤ 3 ms"},
		{"absolute, beyond", Result{Ours: ms(3.1), Target: AtMost(OfOurs, 3, "ms")}, false, "≤ 3 ms"},
		{"added, within", Result{Ours: ms(9), Raw: ms(7.5), Target: AtMost(OfAdded, 2, "ms")}, true, "+ 1.50 ms"},
		{"added, beyond", Result{Ours: ms(9.6), Raw: ms(7.5), Target: AtMost(OfAdded, 2, "ms")}, false, "+ 2.10 ms"},
		{"faster than raw", Result{Ours: ms(1), Raw: ms(2), Target: AtMost(OfAdded, 2, "ms")}, true, "+ 0.00 ms"},
		{"ratio, within", Result{Ours: ms(1), Raw: ms(1), Ratio: 0.8, Target: AtLeast(OfRatio, 0.8, "×")}, true, "≥ 0.8 ×"},
		{"ratio, below", Result{Ours: ms(1), Raw: ms(1), Ratio: 0.79, Target: AtLeast(OfRatio, 0.8, "×")}, false, "0.79 ×"},
		{"ratio, above", Result{Ours: ms(1), Raw: ms(1), Ratio: 1.6, Target: AtMost(OfRatio, 1.5, "×")}, false, "1.60 ×"},
	} {
		r := c.r.Judge()
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
	if r := (Result{What: "x"}).Judge(); r.Met != nil {
		t.Error("something that was not measured is judged")
	}
	if r := (Result{Ours: ms(1)}).Judge(); r.Met != nil {
		t.Error("something without a target is judged")
	}
}

// TestPage shows that a page keeps what is outside its marks, and that one without marks
// stays as it is.
func TestPage(t *testing.T) {
	path := filepath.Join(t.TempDir(), "bench.md")
	r := Report{Results: []Result{{What: "something", Ours: &Quantity{3, "ms"}, P99: &Quantity{9, "ms"}, Fsyncs: new(float64)}},
		Curves: []Curve{{ID: "files", Title: "A & B", X: "files", Series: []Series{{"one", []Point{{1000, 3}, {100_000, 30}}}, {"two", []Point{{1000, 2}, {100_000, 31}}}}}}}
	if err := os.WriteFile(path, []byte("before\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := r.WritePage(path); !fault.Is(err, fault.Invalid) {
		t.Fatalf("a page without marks: %v", err)
	}
	if err := os.WriteFile(path, []byte("before\n"+pageBegin+"old\n"+pageEnd+"after\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := r.WritePage(path); err != nil {
			t.Fatal(err)
		}
	}
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	page := string(b)
	if strings.Contains(page, "old") || strings.Count(page, "| something | 3.00 ms | 9.00 ms | 0.0    |") != 1 || !strings.HasPrefix(page, "before\n") || !strings.HasSuffix(page, "after\n") || !strings.Contains(page, "(bench-files.svg)") {
		t.Fatal(page)
	}
	svg, err := os.ReadFile(filepath.Join(filepath.Dir(path), "bench-files.svg"))
	if err != nil {
		t.Fatal(err)
	}
	for d := xml.NewDecoder(bytes.NewReader(svg)); ; {
		if _, err := d.Token(); err == io.EOF {
			break
		} else if err != nil {
			t.Fatalf("%v in\n%s", err, svg)
		}
	}
}

// TestLabels shows that the names beside a curve's lines don't cover each other.
func TestLabels(t *testing.T) {
	c := Curve{}
	for i, ms := range []float64{10, 10.1, 10.2, 1, 1.01} {
		c.Series = append(c.Series, Series{fmt.Sprint(i), []Point{{1, 5}, {100, ms}}})
	}
	_, y := c.axes()
	at := slices.Sorted(slices.Values(c.labels(y)))
	for i := 1; i < len(at); i++ {
		if at[i]-at[i-1] < 17.9 {
			t.Errorf("two names are %.1f apart", at[i]-at[i-1])
		}
	}
	if at[0] < top || at[len(at)-1] > height-bottom {
		t.Errorf("names at %v leave the picture", at)
	}
}

func TestBusyMachine(t *testing.T) {
	for load, busy := range map[string]bool{"9 1.5 1": false, "0 2.5 1": true, "": false} {
		if got := (Machine{CPUs: 2, LoadBefore: load}).busy(); got != busy {
			t.Errorf("load %q: busy %v", load, got)
		}
	}
}
