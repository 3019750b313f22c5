package report

import (
	"fmt"
	"math"
	"slices"
	"strings"
)

// Curve is a picture of how a cost grows with the amount of data.
type Curve struct {
	ID     string   `json:"id"` // its file is docs/bench-ID.svg
	Title  string   `json:"title"`
	X      string   `json:"x"` // what the horizontal axis counts
	Series []Series `json:"series"`
}

// Series is one line of a curve.
type Series struct {
	Name   string  `json:"name"`
	Points []Point `json:"points"`
}

// Point is how many milliseconds something took with X of them.
type Point struct {
	X  int     `json:"x"`
	MS float64 `json:"ms"`
}

// The picture's dimensions, in its own units.
const (
	width, height            = 760, 400
	left, right, top, bottom = 64, 240, 44, 48
)

// SVG draws the curve with logarithmic axes: a cost that does not depend on the amount is a
// level line. The picture has no background and takes its colours from the reader's theme.
func (c Curve) SVG() string {
	x, y := c.axes()
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" height="%d" role="img" aria-labelledby="t" font-family="system-ui, sans-serif" font-size="12">`+"\n", width, height, width, height)
	fmt.Fprintf(&b, "<title id=\"t\">%s</title>\n", escape(c.Title))
	b.WriteString(style)
	fmt.Fprintf(&b, `<text x="%d" y="22" class="h">%s</text>`+"\n", left, escape(c.Title))
	for _, v := range y.ticks() {
		at := y.at(v)
		fmt.Fprintf(&b, `<path class="g" d="M%d %.1fH%d"/><text x="%d" y="%.1f" text-anchor="end">%s</text>`+"\n", left, at, width-right, left-8, at+4, duration(v))
	}
	for _, v := range x.ticks() {
		at := x.at(v)
		fmt.Fprintf(&b, `<path class="g" d="M%.1f %dV%d"/><text x="%.1f" y="%d" text-anchor="middle">%s</text>`+"\n", at, top, height-bottom, at, height-bottom+18, thousands(v))
	}
	fmt.Fprintf(&b, `<text x="%d" y="%d" text-anchor="middle">%s</text>`+"\n", (left+width-right)/2, height-10, escape(c.X))
	labels := c.labels(y)
	for i, s := range c.Series {
		var d strings.Builder
		for n, p := range s.Points {
			fmt.Fprintf(&d, "%c%.1f %.1f", "ML"[min(n, 1)], x.at(float64(p.X)), y.at(p.MS))
		}
		fmt.Fprintf(&b, `<g class="c%d"><path class="l" d="%s"/>`, i%shades, d.String())
		for _, p := range s.Points {
			fmt.Fprintf(&b, `<circle cx="%.1f" cy="%.1f" r="3.5"><title>%s, %s %s: %s</title></circle>`, x.at(float64(p.X)), y.at(p.MS), escape(s.Name), thousands(float64(p.X)), escape(c.X), duration(p.MS))
		}
		last := s.Points[len(s.Points)-1]
		fmt.Fprintf(&b, `<path class="k" d="M%.1f %.1fL%d %.1f"/><text x="%d" y="%.1f">%s <tspan class="v">%s</tspan></text></g>`+"\n",
			x.at(float64(last.X))+5, y.at(last.MS), width-right+22, labels[i], width-right+26, labels[i]+4, escape(s.Name), duration(last.MS))
	}
	b.WriteString("</svg>\n")
	return b.String()
}

// shades is how many series have a colour of their own.
const shades = 5

// style defines the colours for both themes, chosen so that colour-blind readers can tell
// them apart too.
const style = `<style>
text{fill:#57606a}.h{font-size:14px;font-weight:600;fill:#1f2328}.g{stroke:#8b949e;stroke-opacity:.3;fill:none}
.l{fill:none;stroke:currentColor;stroke-width:2;stroke-linejoin:round}.k{fill:none;stroke:currentColor;stroke-opacity:.5}
circle{fill:currentColor}g text{fill:currentColor}.v{font-weight:600}
.c0{color:#0550ae}.c1{color:#a40e26}.c2{color:#116329}.c3{color:#8a4600}.c4{color:#6639ba}
@media(prefers-color-scheme:dark){text{fill:#9198a1}.h{fill:#f0f6fc}
.c0{color:#79c0ff}.c1{color:#ff9492}.c2{color:#7ee787}.c3{color:#ffb757}.c4{color:#d2a8ff}}
</style>
`

// axis is a logarithmic axis from low to high, in whole powers of ten, drawn between two
// coordinates.
type axis struct{ low, high, from, to float64 }

func (c Curve) axes() (x, y axis) {
	x, y = axis{math.Inf(1), 0, left, width - right}, axis{math.Inf(1), 0, height - bottom, top}
	for _, s := range c.Series {
		for _, p := range s.Points {
			x.low, x.high = min(x.low, float64(p.X)), max(x.high, float64(p.X))
			y.low, y.high = min(y.low, p.MS), max(y.high, p.MS)
		}
	}
	y.low, y.high = math.Pow(10, math.Floor(math.Log10(y.low))), math.Pow(10, math.Ceil(math.Log10(y.high)))
	for _, a := range []*axis{&x, &y} {
		if a.high <= a.low {
			a.high = a.low * 10
		}
	}
	return x, y
}

func (a axis) at(v float64) float64 {
	return a.from + (a.to-a.from)*math.Log10(v/a.low)/math.Log10(a.high/a.low)
}

// ticks are the whole powers of ten of an axis.
func (a axis) ticks() []float64 {
	var out []float64
	for e := math.Ceil(math.Log10(a.low) - 1e-9); math.Pow(10, e) <= a.high*(1+1e-9); e++ {
		out = append(out, math.Pow(10, e))
	}
	return out
}

// labels returns where the series' names are put beside their last points without covering
// each other.
func (c Curve) labels(y axis) []float64 {
	out, order := make([]float64, len(c.Series)), make([]int, len(c.Series))
	for i, s := range c.Series {
		order[i], out[i] = i, y.at(s.Points[len(s.Points)-1].MS)
	}
	slices.SortFunc(order, func(a, b int) int {
		if out[a] < out[b] {
			return -1
		}
		return 1
	})
	const apart = 18
	for n := 1; n < len(order); n++ {
		out[order[n]] = max(out[order[n]], out[order[n-1]]+apart)
	}
	// Labels that were pushed below the axis are moved up again, with those above them.
	limit := float64(height - bottom)
	for n := len(order) - 1; n >= 0; n-- {
		out[order[n]] = min(out[order[n]], limit)
		limit = out[order[n]] - apart
	}
	return out
}

// duration writes milliseconds as a person does.
func duration(ms float64) string {
	if ms >= 1000 {
		return short(ms/1000) + " s"
	}
	return short(ms) + " ms"
}

func short(v float64) string {
	switch {
	case v >= 100 || v == math.Trunc(v):
		return fmt.Sprintf("%.0f", v)
	case v >= 10:
		return fmt.Sprintf("%.1f", v)
	}
	return fmt.Sprintf("%.2f", v)
}

func thousands(v float64) string {
	s := fmt.Sprintf("%.0f", v)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

func escape(s string) string {
	return strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;", `"`, "&quot;").Replace(s)
}
