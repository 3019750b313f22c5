package view

import (
	"bytes"
	"encoding/json"
	"fmt"
)

// Fit cuts a list so that it stays within max bytes of JSON, less what the rest of the
// answer needs, and says whether it did.
func Fit[T any](list []T, max int) ([]T, bool, error) {
	size := 0
	for i := range list {
		b, err := json.Marshal(list[i])
		if err != nil {
			return nil, false, err
		}
		if size += len(b) + 1; size > max-16<<10 && i > 0 {
			return list[:i], true, nil
		}
	}
	if list == nil {
		list = []T{}
	}
	return list, false, nil
}

// ByName writes a value's id under the name that events give it, which its method IDName
// returns: a checkpoint's is "commit". It is used where values are shown beside events.
type ByName[T any] struct{ Of T }

// MarshalJSON implements json.Marshaler. The id is the first field of each such type.
func (n ByName[T]) MarshalJSON() ([]byte, error) {
	b, err := json.Marshal(n.Of)
	named, ok := any(n.Of).(interface{ IDName() string })
	if err != nil || !ok {
		return b, err
	}
	rest, ok := bytes.CutPrefix(b, []byte(`{"id":`))
	if !ok {
		return nil, fmt.Errorf("the id of a %T is not its first field", n.Of)
	}
	return append(fmt.Appendf(nil, `{%q:`, named.IDName()), rest...), nil
}

// IDName is what events call a checkpoint's id.
func (Checkpoint) IDName() string { return "commit" }

// IDName is what events call a checkpoint's id.
func (Checkpointed) IDName() string { return "commit" }

// IDName is what events call a document's id.
func (Document) IDName() string { return "document" }

// In short answers a checkpoint shows the first of what it left out and their number, and a
// restore the first of what it kept.
const (
	shownSkipped = 20
	shownIgnored = 10
	shownKept    = 50
	maxDiffText  = 512 << 10
)

// Fit returns the checkpoint's short form.
func (k Checkpoint) Fit(int) (Checkpoint, error) { return k.short(), nil }

func (k Checkpoint) short() Checkpoint {
	k.Skipped, k.Ignored = k.Skipped[:min(len(k.Skipped), shownSkipped)], k.Ignored[:min(len(k.Ignored), shownIgnored)]
	return k
}

// Fit cuts a diff, its list of changes first.
func (d Diff) Fit(max int) (Diff, error) {
	changes, cut, err := Fit(d.Changes, max)
	if err != nil {
		return d, err
	}
	d.Changes, d.Truncated = changes, d.Truncated || cut
	for limit := maxDiffText; ; limit /= 2 {
		if len(d.Diff) > limit {
			d.Diff, d.Truncated = wholeLines(d.Diff[:limit]), true
		}
		b, err := json.Marshal(d)
		if err != nil || len(b) <= max || limit < 1024 {
			return d, err
		}
	}
}

// wholeLines drops the last, incomplete line.
func wholeLines(s string) string {
	for i := len(s) - 1; i >= 0; i-- {
		if s[i] == '\n' {
			return s[:i+1]
		}
	}
	return ""
}

// Fit returns the proposal without its body; the diff is cut.
func (p Proposal) Fit(max int) (Proposal, error) {
	p.Body = ""
	d, err := Diff{Diff: p.Diff, Truncated: p.Truncated}.Fit(max)
	p.Diff, p.Truncated = d.Diff, d.Truncated
	return p, err
}

// Fit cuts what was restored or would be, and of what stays shows the first entries. The
// changes get the space that the rest leaves, so that a restore that was done always has an
// answer.
func (r Restored) Fit(max int) (Restored, error) {
	rest := r
	rest.Changes, rest.Kept, rest.Unkept = nil, some(r.Kept[:min(len(r.Kept), shownKept)]), r.Unkept.whole()
	for {
		b, err := json.Marshal(rest)
		if err != nil {
			return r, err
		}
		if len(b) > max/2 && len(rest.Kept)+len(rest.Unkept.Paths) > 0 {
			rest.Kept, rest.Unkept.Paths = half(rest.Kept), half(rest.Unkept.Paths)
			continue
		}
		rest.Changes, rest.Truncated, err = Fit(r.Changes, max-len(b))
		return rest, err
	}
}

// Fit shortens the list of what the checkpoint left out.
func (k Checkpointed) Fit(int) (Checkpointed, error) {
	k.Unkept = k.Unkept.whole()
	return k, nil
}

// whole makes a nil list an empty one.
func (u Unkept) whole() Unkept {
	u.Paths = some(u.Paths)
	return u
}

// Fit returns as much of the page as fits; the reader requests the rest.
func (p EventPage) Fit(max int) (EventPage, error) {
	events, cut, err := Fit(p.Events, max)
	if p.Events = events; cut {
		p.Next, p.More = events[len(events)-1].Sequence, true
	}
	return p, err
}

// Fit shortens the lists, dropping the oldest entries, until the snapshot fits. No list is
// null.
func (s Snapshot) Fit(max int) (Snapshot, error) {
	s.Computer.Notes, s.Windows, s.Runs = some(s.Computer.Notes), some(s.Windows), some(s.Runs)
	s.Checkpoints, s.Documents = some(s.Checkpoints), some(s.Documents)
	for i := range s.Windows {
		if s.Windows[i].Props == nil {
			s.Windows[i].Props = map[string]string{}
		}
	}
	for i := range s.Checkpoints {
		s.Checkpoints[i].Of = s.Checkpoints[i].Of.short()
	}
	for {
		b, err := json.Marshal(s)
		if err != nil || len(b) <= max || len(s.Runs)+len(s.Checkpoints)+len(s.Documents) == 0 {
			return s, err
		}
		s.Runs, s.Checkpoints, s.Documents = half(s.Runs), half(s.Checkpoints), half(s.Documents)
	}
}

func half[T any](list []T) []T { return list[:len(list)/2] }

func some[T any](list []T) []T {
	if list == nil {
		return []T{}
	}
	return list
}
