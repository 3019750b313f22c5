package engine_test

import (
	"fmt"
	"testing"
)

// BenchmarkTask measures what the attempt of a task that writes one file costs the keeper, in trees
// of different sizes.
func BenchmarkTask(b *testing.B) {
	for _, files := range []int{1000, 10_000, 100_000} {
		b.Run(fmt.Sprint(files), func(b *testing.B) {
			c := manyFiles(b, files)
			lifeOfATask(c, "first")
			before := usedBy(b)
			n := 0
			for b.Loop() {
				n++
				lifeOfATask(c, fmt.Sprint("t", n))
			}
			b.ReportMetric(float64(usedBy(b).cpu-before.cpu)/float64(n)/1e6, "cpu-ms/task")
		})
	}
}
