package defence

// Who may do what (contract.Actor; internal/ledger, rpc).
const (
	ActorAppend      Name = "actor.append"       // row 22: an event is of a kind of actor that may say it
	ActorAppendPower Name = "actor.append-power" // row 22: and of an actor who was given what it takes
	ActorAsk         Name = "actor.ask"          // row 22: a method is asked by a kind of actor that may ask it
	ActorAskPower    Name = "actor.ask-power"    // row 22: and by an actor who was given what it takes
)

// Row 55: what a computer is told to keep.
const (
	MemoryWords Name = "memory.words" // a Director has only whole sentences kept that a person said to its run
)
