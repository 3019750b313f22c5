package defence

// Who may do what (contract.Actor; internal/ledger).
const (
	ActorAppend      Name = "actor.append"       // row 22: an event is of a kind of actor that may say it
	ActorAppendPower Name = "actor.append-power" // row 22: and of an actor who was given what it takes
)
