// Package calendar finds free time.
package calendar

import "example.test/project/interval"

// Free is what is left of a day between busy spans.
func Free(day interval.Interval, busy []interval.Interval) []interval.Interval {
	var out []interval.Interval
	at := day.From
	for _, b := range interval.Merge(busy) {
		if b.From > at {
			out = append(out, interval.Interval{From: at, To: b.From})
		}
		at = b.To
	}
	if at < day.To {
		out = append(out, interval.Interval{From: at, To: day.To})
	}
	return out
}
