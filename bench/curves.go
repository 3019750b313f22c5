package bench

import (
	"slices"
	"time"

	"choir.dev/choiros/bench/report"
)

// The curves that are drawn.
var (
	curveFiles  = report.Curve{ID: "files", Title: "What acts cost in a tree of so many files", X: "files"}
	curveEvents = report.Curve{ID: "events", Title: "What questions and starts cost with a log of so many events", X: "events"}
)

// curves collects points while rows are measured.
type curves struct{ all []report.Curve }

// plot adds a point to a series of a curve; a second one at the same place replaces the
// first.
func (e *env) plot(c report.Curve, name string, x int, took time.Duration) {
	if e.curves == nil {
		return
	}
	i := slices.IndexFunc(e.curves.all, func(have report.Curve) bool { return have.ID == c.ID })
	if i < 0 {
		i = len(e.curves.all)
		e.curves.all = append(e.curves.all, c)
	}
	at := &e.curves.all[i]
	s := slices.IndexFunc(at.Series, func(have report.Series) bool { return have.Name == name })
	if s < 0 {
		s = len(at.Series)
		at.Series = append(at.Series, report.Series{Name: name})
	}
	points := slices.DeleteFunc(at.Series[s].Points, func(p report.Point) bool { return p.X == x })
	at.Series[s].Points = append(points, report.Point{X: x, MS: float64(took) / 1e6})
}
