package contract

// LogRecovered says what a computer was brought back from after damage. The old
// is kept beside, under Aside in the data directory.
type LogRecovered struct {
	Kept      int      `json:"kept" v:"min=0"`                       // events before this one
	FromState int      `json:"from_state" v:"min=0"`                 // of these, only the state had them
	Unproven  int      `json:"unproven" v:"min=0"`                   // of these, from before there was a chain
	Lost      int      `json:"lost" v:"min=0"`                       // events that were acknowledged and can't be had
	History   bool     `json:"history,omitempty"`                    // checkpoints before this event may be gone
	Continues string   `json:"continues,omitempty" v:"max=64"`       // the commit at which the history stands: events that can't be had made it
	Gone      []string `json:"gone,omitempty" v:"items=200;max=300"` // what is missing, each with why it matters
	Aside     string   `json:"aside,omitempty" v:"max=300"`
}

// Validate checks the data of the event.
func (p LogRecovered) Validate() error { return check(p) }

// DamageFound says what of a computer's data is damaged, and what it was made
// again from, "" when nothing else holds it.
type DamageFound struct {
	Part   string `json:"part" v:"required,max=300"`
	What   string `json:"what" v:"required,max=8192"`
	Healed string `json:"healed,omitempty" v:"max=300"`
}

// Validate checks the data of the event.
func (p DamageFound) Validate() error { return check(p) }
