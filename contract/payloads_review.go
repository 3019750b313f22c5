package contract

// ReviewDecision is what a person decides about work that they were shown before it is published.
type ReviewDecision string

// What is decided.
const (
	ReviewPublish ReviewDecision = "publish" // publish it, or what is chosen of it
	ReviewRevise  ReviewDecision = "revise"  // send it back to its loop with what is said of it
	ReviewDiscard ReviewDecision = "discard" // publish nothing of it
)

type (
	// Choice is a change that a person takes: all that was changed at a path and beneath it, or of a
	// file only these hunks, by their ids.
	Choice struct {
		Path  string   `json:"path" v:"required,raw,max=4096"`
		Hunks []string `json:"hunks,omitempty" v:"items=2000;required,max=64"`
	}
	// ReviewComment is what a person says of a line or paragraph of the work, of a file as a whole where
	// Line is 0, and of all of it where Path is empty. Quote is the line as they were shown it.
	ReviewComment struct {
		Path  string `json:"path,omitempty" v:"raw,max=4096"`
		Line  int    `json:"line,omitempty" v:"min=0,max=100000000"` // of the file as the work has it, from 1
		Quote string `json:"quote,omitempty" v:"max=2000"`
		Text  string `json:"text" v:"required,max=8192"`
	}
	// ReviewRequested says that an attempt's work has passed its checks and waits until a person has
	// looked at it. It is a transition like AttemptMoved.
	ReviewRequested struct {
		Attempt int    `json:"attempt" v:"min=1,max=1000"`
		Review  int    `json:"review" v:"min=1,max=1000"` // from 1, of the attempt
		Base    string `json:"base" v:"required,commit"`  // what the work is compared with
		Work    string `json:"work" v:"required,commit"`  // the attempt's own tree, which is looked at and, if all of it is taken, published
		Paths   int    `json:"paths" v:"min=0"`           // how many were changed
		// Reason is why it is asked once more although it was answered: what was chosen of it failed its checks.
		Reason string `json:"reason,omitempty" v:"raw,max=16384"`
	}
	// ReviewAnswered is a person's decision about the work that they were shown. It is a transition
	// like AttemptMoved.
	ReviewAnswered struct {
		Attempt  int             `json:"attempt" v:"min=1,max=1000"`
		Review   int             `json:"review" v:"min=1,max=1000"`
		Work     string          `json:"work" v:"required,commit"`
		Decision ReviewDecision  `json:"decision" v:"required"`
		Only     []Choice        `json:"only,omitempty" v:"items=2000"` // publish: what is taken; empty: all of it
		Comments []ReviewComment `json:"comments,omitempty" v:"items=100"`
	}
	// Reviewed is what became of a review, in a result.
	Reviewed struct {
		Decision ReviewDecision  `json:"decision" v:"required"`
		By       string          `json:"by" v:"required,max=200"`    // who decided, as an event's actor: person:u-1, app:desktop
		User     string          `json:"user,omitempty" v:"max=200"` // on whose behalf
		At       string          `json:"at" v:"required,time"`
		Work     string          `json:"work" v:"required,commit"`
		Only     []Choice        `json:"only,omitempty" v:"items=2000"` // what was taken; empty: all of it
		Comments []ReviewComment `json:"comments,omitempty" v:"items=100"`
	}
)

// Validate implements Payload.
func (p ReviewRequested) Validate() error { return check(p) }

// Validate implements Payload.
func (p ReviewAnswered) Validate() error { return check(p) }

func (p ReviewAnswered) crossCheck() error {
	switch {
	case len(p.Only) > 0 && p.Decision != ReviewPublish:
		return fieldErr("only", "is for what is published")
	case p.Decision == ReviewRevise && len(p.Comments) == 0:
		return fieldErr("comments", "are required with revise: they are what the loop is told")
	}
	size := 0
	for _, c := range p.Comments {
		size += len(c.Text) + len(c.Quote) + len(c.Path)
	}
	if size > MaxComments {
		return fieldErr("comments", "hold %d bytes; at most %d are taken", size, MaxComments)
	}
	return nil
}

// MaxComments bounds what a review's comments hold together, in bytes: a loop is told all of it.
const MaxComments = 32 << 10

func init() {
	register[ReviewRequested](TypeInfo{Type: "review.requested", Doc: "Work that passed its checks waits until a person has looked at it.", By: host, Needs: CanRecord, Projected: true})
	register[ReviewAnswered](TypeInfo{Type: "review.answered", Doc: "A person decided about work that they were shown.", By: clients, Needs: CanWrite, Projected: true})
}
