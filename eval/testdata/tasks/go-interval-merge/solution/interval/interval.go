// Package interval has half-open spans of minutes.
package interval

import "sort"

// Interval is [From, To).
type Interval struct{ From, To int }

// Merge joins spans that overlap or touch, in order.
func Merge(in []Interval) []Interval {
	list := append([]Interval(nil), in...)
	sort.Slice(list, func(i, j int) bool { return list[i].From < list[j].From })
	var out []Interval
	for _, i := range list {
		if n := len(out); n > 0 && i.From <= out[n-1].To {
			out[n-1].To = max(out[n-1].To, i.To)
			continue
		}
		out = append(out, i)
	}
	return out
}
