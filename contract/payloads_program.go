package contract

// ProgramReport says what a ProgramReported is about.
type ProgramReport string

// What an agent program reports.
const (
	ProgramSaid ProgramReport = "said" // it said Text
	ProgramCall ProgramReport = "call" // of one of its own tool calls, whose title is Text
	ProgramPlan ProgramReport = "plan" // its plan, whole, a line for each item
)

// CallStatus is where an agent program's own tool call stands, as it says.
type CallStatus string

// Where such a call stands.
const (
	CallBegun  CallStatus = "begun"
	CallDone   CallStatus = "done"
	CallFailed CallStatus = "failed"
)

// ProgramReported is what an agent program in a task's box says of its work. Nothing of it was seen by the
// host: it is shown, and decides nothing.
type ProgramReported struct {
	Attempt int           `json:"attempt" v:"min=0,max=1000"`
	Program string        `json:"program" v:"required,line,max=32"`
	What    ProgramReport `json:"what" v:"required"`
	Text    string        `json:"text" v:"raw,max=16384"`
	Call    string        `json:"call,omitempty" v:"max=256"` // the program's id of the call
	Status  CallStatus    `json:"status,omitempty"`
	// Calls counts the tool calls that the program has told of in this attempt so far.
	Calls int `json:"calls" v:"min=0,max=1000000000"`
}

// Validate implements Payload.
func (p ProgramReported) Validate() error { return check(p) }

func (p ProgramReported) crossCheck() error {
	if (p.What == ProgramCall) != (p.Status != "") {
		return fieldErr("status", "is for a call, and a call has one")
	}
	return nil
}

func init() {
	register[ProgramReported](TypeInfo{Type: "program.reported", Doc: "What an agent program says of its work on a task; nobody vouches for it.", By: []ActorKind{KindAssociate}, Needs: CanWork})
}
