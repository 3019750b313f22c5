package view

import (
	"time"

	"choir.dev/choiros/contract"
)

// Fact is something that a person told the computer to keep, in their words.
type Fact struct {
	ID       string             `json:"id"` // of the event that it was remembered with
	Text     string             `json:"text"`
	From     []string           `json:"from,omitempty"` // the events that it came from; none: it was said by itself
	Run      string             `json:"run,omitempty"`  // whose Director noted it
	Actor    contract.ActorName `json:"actor"`
	User     string             `json:"user,omitempty"` // on whose behalf
	Time     time.Time          `json:"time"`
	Kept     bool               `json:"kept"` // false: it was forgotten
	Sequence uint64             `json:"sequence"`
}

// Remember is a fact to keep.
type Remember struct {
	Text string   `json:"text" required:"true" minLength:"1" maxLength:"500" doc:"one line, in your own words"`
	From []string `json:"from,omitempty" maxItems:"20" doc:"facts that it follows from; it is forgotten with them"`
}

// Validate implements validation.
func (r Remember) Validate() error { return contract.MemoryRemembered(r).Validate() }

// Forgotten is what was forgotten: a fact, and what followed from it.
type Forgotten struct {
	Facts []Fact `json:"facts"`
}
