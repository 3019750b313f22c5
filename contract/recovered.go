package contract

// LogRecovered says what a computer was recovered from after damage. The damaged data are
// kept under Aside in the data directory.
type LogRecovered struct {
	Kept      int      `json:"kept" v:"min=0"`                       // events before this one
	FromState int      `json:"from_state" v:"min=0"`                 // of these, only the state had them
	Unproven  int      `json:"unproven" v:"min=0"`                   // of these, from before events were chained
	Lost      int      `json:"lost" v:"min=0"`                       // events that were acknowledged and could not be recovered
	History   bool     `json:"history,omitempty"`                    // checkpoints before this event may be gone
	Continues string   `json:"continues,omitempty" v:"max=64"`       // the commit at which the history stands; it was made by events that could not be recovered
	Gone      []string `json:"gone,omitempty" v:"items=200;max=300"` // what is missing, each with why it matters
	Aside     string   `json:"aside,omitempty" v:"max=300"`
}

// Validate checks the data of the event.
func (p LogRecovered) Validate() error { return check(p) }

// DamageFound says what of a computer's data is damaged, and what it was restored from, ""
// when nothing else holds it.
type DamageFound struct {
	Part   string `json:"part" v:"required,max=300"`
	What   string `json:"what" v:"required,max=8192"`
	Healed string `json:"healed,omitempty" v:"max=300"`
}

// Validate checks the data of the event.
func (p DamageFound) Validate() error { return check(p) }
