package engine_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// BenchmarkTask measures what the attempt of a task that writes one file costs the
// keeper, in trees of different sizes.
func BenchmarkTask(b *testing.B) {
	for _, files := range []int{1000, 10_000, 100_000} {
		b.Run(fmt.Sprint(files), func(b *testing.B) {
			c := open(b)
			c.still = "s"
			for i := range files {
				p := c.path(fmt.Sprintf("workspace/d%d/d%d/f%d", i/2500, i/50, i))
				if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
					b.Fatal(err)
				}
				if err := os.WriteFile(p, []byte(fmt.Sprint(i)), 0o644); err != nil {
					b.Fatal(err)
				}
			}
			time.Sleep(100 * time.Millisecond) // files that old need not be read again
			lifeOfATask(c, "first")
			var before, after unix.Rusage
			if err := unix.Getrusage(unix.RUSAGE_SELF, &before); err != nil {
				b.Fatal(err)
			}
			n := 0
			for b.Loop() {
				n++
				lifeOfATask(c, fmt.Sprint("t", n))
			}
			if err := unix.Getrusage(unix.RUSAGE_SELF, &after); err != nil {
				b.Fatal(err)
			}
			used := after.Utime.Nano() + after.Stime.Nano() - before.Utime.Nano() - before.Stime.Nano()
			b.ReportMetric(float64(used)/float64(n)/1e6, "cpu-ms/task")
		})
	}
}
