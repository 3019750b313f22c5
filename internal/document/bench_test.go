package document_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"choir.dev/choiros/internal/document"
)

// BenchmarkRevise writes revisions of a document of 200 lines, synced to the log, and reports the
// median.
func BenchmarkRevise(b *testing.B) {
	d, _, _ := open(b)
	body := strings.Repeat("a line of a document that someone writes\n", 200)
	r := create(b, d, body)
	var took []time.Duration
	for n := 0; b.Loop(); n++ {
		at := time.Now()
		next, err := d.Revise(b.Context(), r.Document, r.Revision, body+fmt.Sprintln("line", n), person)
		if err != nil {
			b.Fatal(err)
		}
		took = append(took, time.Since(at))
		r = next
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Microseconds())/1000, "ms-p50")
}

// BenchmarkMerge merges two changes of a document of 2,000 lines.
func BenchmarkMerge(b *testing.B) {
	lines := make([]string, 2000)
	for i := range lines {
		lines[i] = fmt.Sprintf("line %d of a document\n", i)
	}
	base := strings.Join(lines, "")
	ours, theirs := strings.Replace(base, "line 500 ", "LINE ", 1), strings.Replace(base, "line 1500 ", "LINE ", 1)
	for b.Loop() {
		if _, conflicts := document.Merge(base, ours, theirs); conflicts != nil {
			b.Fatal("conflict")
		}
	}
}
