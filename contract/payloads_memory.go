package contract

// What people told a computer to keep, and what of it holds no longer.

// Bounds of what a computer keeps: how many facts, how long each is, and all of them together, in bytes. They are
// told to every loop in each of its requests.
const (
	MaxFacts      = 40
	MaxFact       = 500
	MaxFactsBytes = 4096
)

type (
	// MemoryRemembered is a fact that a person told the computer to keep, in their own words. The event's id names
	// the fact.
	MemoryRemembered struct {
		Text string `json:"text" v:"required,line,max=500"`
		// From are the events that it came from: where the person said it, or the facts that it follows from. None:
		// it was said here.
		From []string `json:"from,omitempty" v:"items=20;required,id"`
	}
	// MemoryForgotten says that facts hold no longer: one, and what followed from it.
	MemoryForgotten struct {
		Facts []string `json:"facts" v:"nonempty,items=40;required,id"`
	}
	// MemoryRestored says that facts which were forgotten are kept again.
	MemoryRestored struct {
		Facts []string `json:"facts" v:"nonempty,items=40;required,id"`
	}
	// Fact is a fact as loops are told of it.
	Fact struct {
		ID   string `json:"id" v:"required,id"`
		Text string `json:"text" v:"required,line,max=500"`
	}
)

// Validate implements Payload.
func (p MemoryRemembered) Validate() error { return check(p) }

// Validate implements Payload.
func (p MemoryForgotten) Validate() error { return check(p) }

// Validate implements Payload.
func (p MemoryRestored) Validate() error { return check(p) }

func init() {
	register[MemoryRemembered](TypeInfo{Type: "memory.remembered", Doc: "A person told the computer to keep a fact, or an agent noted what they said.", By: []ActorKind{KindPerson, KindDirector, KindAssociate}, Needs: CanWrite, Projected: true})
	register[MemoryForgotten](TypeInfo{Type: "memory.forgotten", Doc: "Facts hold no longer.", By: clients, Needs: CanWrite, Projected: true})
	register[MemoryRestored](TypeInfo{Type: "memory.restored", Doc: "Facts that were forgotten are kept again.", By: clients, Needs: CanWrite, Projected: true})
}
