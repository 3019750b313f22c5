package contract

// What calls of tools change outside of the computer, where no checkpoint reaches.

// EffectKind says by what something outside is changed.
type EffectKind string

// By what something outside is changed.
const (
	EffectMCP     EffectKind = "mcp"     // a call of a tool of a server of the Model Context Protocol
	EffectRequest EffectKind = "request" // a request of HTTP that a person allowed
)

// EffectOutcome is what is known of an effect when nobody waits for its answer any more.
type EffectOutcome string

// What is known of an effect.
const (
	EffectDone    EffectOutcome = "done"    // whoever was asked answered that it is done
	EffectFailed  EffectOutcome = "failed"  // they answered that it is not, or nothing was sent
	EffectUnknown EffectOutcome = "unknown" // it was, or may have been, sent, and there is no answer
)

// EffectFound is what a person found where an effect may have happened.
type EffectFound string

// What a person found.
const (
	FoundDone    EffectFound = "done"     // it happened
	FoundNotDone EffectFound = "not_done" // it did not
)

// Outcome is what an effect came to as the person found.
func (f EffectFound) Outcome() EffectOutcome {
	if f == FoundDone {
		return EffectDone
	}
	return EffectFailed
}

type (
	// EffectIntended says that a call is about to change something outside. It is on disk before anything leaves, so
	// that nothing happens outside of which the log does not know.
	EffectIntended struct {
		Effect string     `json:"effect" v:"required,id"`
		Kind   EffectKind `json:"kind" v:"required"`
		// Target is a server and its tool, or a method and an address without its query.
		Target string `json:"target" v:"required,line,max=2400"`
		// What shows the arguments, or the beginning of them.
		What string `json:"what,omitempty" v:"line,max=2000"`
		// Digest is of the arguments in canonical form, without Key; Args holds them as they are sent.
		Digest string  `json:"digest" v:"required,max=64"`
		Args   BlobRef `json:"args" v:"required"`
		// Key is the idempotency key that the service is given, if it takes one.
		Key     string `json:"key,omitempty" v:"line,max=256"`
		Call    string `json:"call" v:"required,max=128"`
		Attempt int    `json:"attempt" v:"min=1,max=1000"`
		// Again is the earlier effect that this one makes once more.
		Again string `json:"again,omitempty" v:"id"`
		// Approval is what a person allowed this one request with. Of each there is at most one effect.
		Approval string `json:"approval,omitempty" v:"id"`
	}
	// EffectEnded says what an effect came to. There is one of each effect: what nobody knows ends as unknown, and
	// stays so.
	EffectEnded struct {
		Effect  string        `json:"effect" v:"required,id"`
		Outcome EffectOutcome `json:"outcome" v:"required"`
		Detail  string        `json:"detail,omitempty" v:"line,max=2000"` // what the service answered, or why there is no answer
		Status  int           `json:"status,omitempty" v:"min=0,max=999"` // of an answer of HTTP
		Answer  BlobRef       `json:"answer,omitempty"`                   // what the service answered, when Detail has only its beginning
	}
	// EffectResolved is a person's word on an effect whose outcome is unknown.
	EffectResolved struct {
		Effect string      `json:"effect" v:"required,id"`
		Found  EffectFound `json:"found" v:"required"`
		Note   string      `json:"note,omitempty" v:"line,max=1000"`
	}
	// EffectOutside is an effect as the result of an attempt names it.
	EffectOutside struct {
		Effect  string        `json:"effect" v:"required,id"`
		Kind    EffectKind    `json:"kind" v:"required"`
		Target  string        `json:"target" v:"required,line,max=2400"`
		What    string        `json:"what,omitempty" v:"line,max=2000"`
		Outcome EffectOutcome `json:"outcome" v:"required"`
		Key     string        `json:"key,omitempty" v:"line,max=256"`
	}
)

// Validate implements Payload.
func (p EffectIntended) Validate() error { return check(p) }

// Validate implements Payload.
func (p EffectEnded) Validate() error { return check(p) }

// Validate implements Payload.
func (p EffectResolved) Validate() error { return check(p) }

// EffectSubject is that of all events about one effect, so that each is appended behind the one before.
func EffectSubject(effect string) string { return "effect/" + effect }

func (p EffectIntended) crossCheck() error {
	if p.Again == p.Effect {
		return fieldErr("again", "is the effect itself")
	}
	if (p.Kind == EffectRequest) != (p.Approval != "") {
		return fieldErr("approval", "is required for a request, and only for one")
	}
	return nil
}

func init() {
	register[EffectIntended](TypeInfo{Type: "effect.intended", Doc: "A call is about to change something outside of the computer.", By: []ActorKind{KindAssociate}, Needs: CanNetwork, Projected: true})
	register[EffectEnded](TypeInfo{Type: "effect.ended", Doc: "What a call that changes something outside came to: done, failed or unknown.", By: host, Needs: CanRecord, Projected: true})
	register[EffectResolved](TypeInfo{Type: "effect.resolved", Doc: "A person said what they found of an effect whose outcome was unknown.", By: []ActorKind{KindPerson}, Needs: CanApprove, Projected: true})
}
