package run

import (
	"slices"
	"time"

	"choir.dev/choiros/contract"
)

// Cited is what the run's tasks quote.
type Cited struct {
	Sources map[string]contract.SourceAdded // by id
	All     []contract.Citation             // each label once, oldest first
	by      map[string][]string             // labels by task
}

func (c *Cited) add(task string, cited contract.Citation) {
	if at := slices.IndexFunc(c.All, func(k contract.Citation) bool { return k.Label == cited.Label }); at >= 0 {
		if c.All[at].Support == contract.SupportUnknown {
			c.All[at] = cited // it was judged anew
		}
	} else {
		c.All = append(c.All, cited)
	}
	if c.by == nil {
		c.by = map[string][]string{}
	}
	if !slices.Contains(c.by[task], cited.Label) {
		c.by[task] = append(c.by[task], cited.Label)
	}
}

// Find returns the citation with a label.
func (c *Cited) Find(label string) (contract.Citation, bool) {
	at := slices.IndexFunc(c.All, func(k contract.Citation) bool { return k.Label == label })
	if at < 0 {
		return contract.Citation{}, false
	}
	return c.All[at], true
}

// By returns what a task cited, in the order in which the run first did.
func (c *Cited) By(task string) []contract.Citation {
	var out []contract.Citation
	for _, k := range c.All {
		if slices.Contains(c.by[task], k.Label) {
			out = append(out, k)
		}
	}
	return out
}

// applyRead applies an event about what the run's tasks read and quote.
func (r *Run) applyRead(e contract.Event, p contract.Payload) bool {
	switch p := p.(type) {
	case *contract.SearchAnswered:
		for _, f := range p.Results {
			if r.Web.Found == nil {
				r.Web.Found = map[string]bool{}
			}
			r.Web.Found[f.URL] = true
		}
	case *contract.PageFetched:
		if r.Web.Pages == nil {
			r.Web.Pages = map[string]contract.PageFetched{}
		}
		r.Web.Pages[p.URL] = *p
		if r.Web.Read == nil {
			r.Web.Read = map[string]string{}
		}
		r.Web.Read[p.URL] = e.Time.UTC().Format(time.RFC3339)
	case *contract.SourceAdded:
		if r.Cited.Sources == nil {
			r.Cited.Sources = map[string]contract.SourceAdded{}
		}
		r.Cited.Sources[e.Subject] = *p
	case *contract.CitationRecorded:
		r.Cited.add(e.Task, p.Citation)
	default:
		return false
	}
	return true
}
