package ledger_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/bus"
	"choir.dev/choiros/internal/ledger"
)

func benchDraft() contract.Draft { return prompt(strings.Repeat("an intention ", 20)) }

// BenchmarkAppend compares appends with raw publishes of the same bytes. The two alternate,
// so that both see the same disk and the same load. x/raw is events per second relative to
// the raw publishes; µs/append is the time of one call.
func BenchmarkAppend(b *testing.B) {
	for _, bc := range []struct {
		name    string
		callers int
		each    int // drafts per Append
	}{{"sequential", 1, 1}, {"callers=8", 8, 1}, {"callers=64", 64, 1}, {"drafts=2", 1, 2}, {"drafts=20", 1, 20}, {"drafts=200", 1, 200}} {
		b.Run(bc.name, func(b *testing.B) {
			bu := openBus(b, b.TempDir())
			l := openLog(b, bu, ledger.Options{CID: contract.NewCID()})
			first := mustAppend(b, l, benchDraft())[0]
			body, err := contract.MarshalEvent(first)
			if err != nil {
				b.Fatal(err)
			}
			bare := contract.NewCID()
			if err := bus.EnsureStream(b.Context(), bu.JetStream(), bare, 1); err != nil {
				b.Fatal(err)
			}
			subject := contract.SubjectLog(bare, contract.KindPerson, "prompt.submitted")
			var raw, ours time.Duration
			turns := 0
			for done := 0; done < b.N; turns++ {
				start := time.Now()
				if _, err := bu.JetStream().Publish(b.Context(), subject, body); err != nil {
					b.Fatal(err)
				}
				raw += time.Since(start)
				n := min(b.N-done, bc.callers)
				start = time.Now()
				if bc.callers == 1 {
					appendOne(b, l, bc.each)
				} else {
					n = min(b.N-done, 4*bc.callers)
					appendAll(b, l, n, bc.callers, bc.each)
				}
				ours += time.Since(start)
				done += n
			}
			perSecond := float64(b.N*bc.each) / ours.Seconds()
			b.ReportMetric(perSecond, "events/s")
			b.ReportMetric(perSecond*raw.Seconds()/float64(turns), "x/raw")
			b.ReportMetric(float64(raw.Microseconds())/float64(turns), "µs/raw")
			b.ReportMetric(float64(ours.Microseconds())*float64(bc.callers)/float64(b.N), "µs/append")
		})
	}
}

func appendOne(b *testing.B, l *ledger.Log, each int) {
	drafts := make([]contract.Draft, each)
	for i := range drafts {
		drafts[i] = benchDraft()
	}
	mustAppend(b, l, drafts...)
}

// BenchmarkTogether compares appends of several concurrent callers with as many concurrent
// publishers on the same server, and with a single caller of ours. All alternate.
func BenchmarkTogether(b *testing.B) {
	for _, callers := range []int{2, 4, 8, 16} {
		b.Run(fmt.Sprintf("callers=%d", callers), func(b *testing.B) {
			bu := openBus(b, b.TempDir())
			l := openLog(b, bu, ledger.Options{CID: contract.NewCID()})
			body, err := contract.MarshalEvent(mustAppend(b, l, benchDraft())[0])
			if err != nil {
				b.Fatal(err)
			}
			bare := contract.NewCID()
			if err := bus.EnsureStream(b.Context(), bu.JetStream(), bare, 1); err != nil {
				b.Fatal(err)
			}
			subject := contract.SubjectLog(bare, contract.KindPerson, "prompt.submitted")
			publish := func() error { _, err := bu.JetStream().Publish(b.Context(), subject, body); return err }
			ours := func() error { _, err := l.Append(b.Context(), benchDraft()); return err }
			const turn = 64
			var raw, together, alone time.Duration
			n := 0
			for b.Loop() {
				alone += timed(b, 1, turn, ours)
				raw += timed(b, callers, turn, publish)
				together += timed(b, callers, turn, ours)
				n += turn
			}
			b.ReportMetric(raw.Seconds()/together.Seconds(), "x/raw")
			b.ReportMetric(alone.Seconds()/together.Seconds(), "x/alone")
			b.ReportMetric(float64(n)/together.Seconds(), "events/s")
		})
	}
}

// timed lets callers do something n times in all, and returns how long that took.
func timed(b *testing.B, callers, n int, do func() error) time.Duration {
	b.Helper()
	var g errgroup.Group
	start := time.Now()
	for c := range callers {
		g.Go(func() error {
			for i := c; i < n; i += callers {
				if err := do(); err != nil {
					return err
				}
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		b.Fatal(err)
	}
	return time.Since(start)
}

// appendAll makes n appends from callers goroutines.
func appendAll(b *testing.B, l *ledger.Log, n, callers, each int) {
	b.Helper()
	var g errgroup.Group
	g.SetLimit(callers)
	for range n {
		g.Go(func() error {
			drafts := make([]contract.Draft, each)
			for i := range drafts {
				drafts[i] = benchDraft()
			}
			_, err := l.Append(b.Context(), drafts...)
			return err
		})
	}
	if err := g.Wait(); err != nil {
		b.Fatal(err)
	}
}

// BenchmarkRead reads a log from its start, as a replay does.
func BenchmarkRead(b *testing.B) {
	bu := openBus(b, b.TempDir())
	cid := contract.NewCID()
	l := openLog(b, bu, ledger.Options{CID: cid})
	const total = 10_000
	drafts := make([]contract.Draft, 200)
	for range total / len(drafts) {
		for i := range drafts {
			drafts[i] = benchDraft()
		}
		mustAppend(b, l, drafts...)
	}
	b.ResetTimer()
	for range b.N {
		read := 0
		for {
			page, err := l.Read(b.Context(), uint64(read), 0)
			if err != nil {
				b.Fatal(err)
			}
			if len(page) == 0 {
				break
			}
			read += len(page)
		}
		if read != total {
			b.Fatalf("read %d events", read)
		}
	}
	b.ReportMetric(float64(total*b.N)/b.Elapsed().Seconds(), "events/s")
}

// BenchmarkOpen opens a log of 10,000 events without an index.
func BenchmarkOpen(b *testing.B) {
	bu := openBus(b, b.TempDir())
	cid := contract.NewCID()
	l := openLog(b, bu, ledger.Options{CID: cid})
	drafts := make([]contract.Draft, 200)
	for range 50 {
		for i := range drafts {
			drafts[i] = benchDraft()
		}
		mustAppend(b, l, drafts...)
	}
	if err := l.Close(); err != nil {
		b.Fatal(err)
	}
	b.ResetTimer()
	for range b.N {
		l, err := ledger.Open(b.Context(), bu.JetStream(), ledger.Options{CID: cid})
		if err != nil {
			b.Fatal(err)
		}
		if err := l.Close(); err != nil {
			b.Fatal(err)
		}
	}
}
