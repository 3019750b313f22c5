// Package report holds the results of a bench run against their targets, and shows the
// table of them and the curves in a page. It measures nothing.
package report

import (
	"slices"
	"strconv"
	"strings"
	"time"
)

// Quantity is a number with its unit.
type Quantity struct {
	Value float64 `json:"value"`
	Unit  string  `json:"unit"`
}

// Target is the limit of a row. Of says which of its numbers is limited: ours, ratio
// (ours/raw, or raw/ours where more of ours is better: see Result.Ratio) or added
// (ours-raw).
type Target struct {
	Of      string   `json:"of"`
	AtLeast bool     `json:"at_least,omitempty"`
	Limit   Quantity `json:"limit"`
}

// Result is one line of the table.
type Result struct {
	ID   string    `json:"id"`
	What string    `json:"what"`
	Ours *Quantity `json:"ours,omitempty"`
	// P99 is that of ours, where ours is the median of many tries.
	P99 *Quantity `json:"p99,omitempty"`
	// Fsyncs is how many times one of them waited for the disk, in all processes of the
	// product; nil: not counted.
	Fsyncs  *float64  `json:"fsyncs,omitempty"`
	Raw     *Quantity `json:"raw,omitempty"`
	RawWhat string    `json:"raw_what,omitempty"`
	// Ratio is ours/raw, or raw/ours where Target is "at least" and more is better.
	Ratio  float64 `json:"ratio,omitempty"`
	Target *Target `json:"target,omitempty"`
	// Met is nil when nothing was measured or there is no target.
	Met  *bool  `json:"met,omitempty"`
	Note string `json:"note,omitempty"`
	// NotMeasured says why there is no number.
	NotMeasured string `json:"not_measured,omitempty"`
	// Failed is set when it should have been measured, but an error prevented it.
	Failed bool `json:"failed,omitempty"`
}

// added is by how much ours exceeds raw.
func (r Result) added() Quantity {
	return Quantity{max(0, r.Ours.Value-r.Raw.Value), r.Ours.Unit}
}

// Judge fills Met.
func (r Result) Judge() Result {
	if r.Target == nil || r.Ours == nil {
		return r
	}
	got := r.Ours.Value
	switch r.Target.Of {
	case OfRatio:
		got = r.Ratio
	case OfAdded:
		got = r.added().Value
	}
	met := got <= r.Target.Limit.Value
	if r.Target.AtLeast {
		met = got >= r.Target.Limit.Value
	}
	r.Met = &met
	return r
}

const (
	OfOurs  = "ours"
	OfRatio = "ratio"
	OfAdded = "added"
)

func AtMost(of string, v float64, unit string) *Target {
	return &Target{Of: of, Limit: Quantity{v, unit}}
}

func AtLeast(of string, v float64, unit string) *Target {
	return &Target{Of: of, AtLeast: true, Limit: Quantity{v, unit}}
}

// Report is a whole run.
type Report struct {
	Started time.Time     `json:"started"`
	Took    time.Duration `json:"took_ns"`
	Version string        `json:"version"`
	Machine Machine       `json:"machine"`
	Results []Result      `json:"results"`
	Curves  []Curve       `json:"curves,omitempty"`
}

// Failed reports whether a row that should have been measured ended in an error.
func (r Report) Failed() bool {
	return slices.ContainsFunc(r.Results, func(r Result) bool { return r.Failed })
}

// Machine is what the numbers were measured on.
type Machine struct {
	CPUs       int    `json:"cpus"`
	CPU        string `json:"cpu"`
	MemoryMB   int64  `json:"memory_mb"`
	Kernel     string `json:"kernel"`
	FileSystem string `json:"file_system"`
	Go         string `json:"go"`
	Git        string `json:"git"`
	LoadBefore string `json:"load_before"` // 1, 5 and 15 minutes
	LoadAfter  string `json:"load_after"`
}

// busy reports whether there was more work than processors in the five minutes before the
// run; the run itself is less work than that. The load at its end is only reported.
func (m Machine) busy() bool {
	f := strings.Fields(m.LoadBefore)
	if len(f) < 2 {
		return false
	}
	load, err := strconv.ParseFloat(f[1], 64)
	return err == nil && load > float64(m.CPUs)
}
