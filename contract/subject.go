package contract

import "strings"

// Subjects on NATS. Clients hold no JetStream permissions; only the control
// plane publishes to log.>.

// StreamShared is the JetStream stream that held every computer's log before
// each had its own.
const StreamShared = "EVENTS"

// StreamLog is the JetStream stream that holds a computer's log.
func StreamLog(cid CID) string { return StreamShared + "-" + string(cid) }

// SubjectLog is where the appender publishes one event of a computer's log.
func SubjectLog(cid CID, kind ActorKind, eventType string) string {
	return "log." + string(cid) + "." + string(kind) + "." + eventType
}

// SubjectEvent is the subject of an event in its computer's log. It uses the kind in the
// event's source, so that events from before actors existed keep their subjects.
func SubjectEvent(e Event) string {
	_, kind, _ := splitSource(e.Source)
	return SubjectLog(e.Computer, ActorKind(kind), e.Type)
}

// SubjectEvents is where several events of a computer's log are that were appended
// together.
func SubjectEvents(cid CID) string { return "log." + string(cid) + ".events" }

// SubjectLogAll is the filter over a computer's whole log.
func SubjectLogAll(cid CID) string { return "log." + string(cid) + ".>" }

// SubjectFence is where whoever wants to take over a computer's log says so to its owner.
func SubjectFence(cid CID) string { return "fence." + string(cid) }

// SubjectLive is the filter over what all who may look at a computer see alike: the events
// of its log, published once they are acknowledged, and the tick. What is for one session
// only is never published here.
func SubjectLive(cid CID) string { return "live." + string(cid) + ".>" }

// SubjectLiveEvent is where an event is published to those who are connected.
func SubjectLiveEvent(e Event) string { return "live." + strings.TrimPrefix(SubjectEvent(e), "log.") }

// SubjectTick carries {"sequence":n} periodically, so that a lost last event is noticed.
func SubjectTick(cid CID) string { return "live." + string(cid) + ".tick" }

// SubjectStreams is the filter over what one session of a computer alone sees.
func SubjectStreams(cid CID, session string) string {
	return "stream." + string(cid) + "." + session + ".>"
}

// SubjectTokens carries a run's model text, as it arrives, to a session that
// follows the run; it is not logged.
func SubjectTokens(cid CID, session, run string) string {
	return "stream." + string(cid) + "." + session + ".tokens." + run
}

// SubjectWords is where the host publishes a run's model text; no client may subscribe to
// it.
func SubjectWords(cid CID, run string) string { return "words." + string(cid) + "." + run }

// SubjectAction takes a person's intention, request → {"sequence":n}.
func SubjectAction(cid CID) string { return "user." + string(cid) + ".action" }

// SubjectService takes a request to a service of a computer.
func SubjectService(cid CID, service, method string) string {
	return "svc." + string(cid) + "." + service + "." + method
}

// SubjectServiceAll is the filter over a computer's services.
func SubjectServiceAll(cid CID) string { return "svc." + string(cid) + ".>" }

// SubjectResult is published, not logged, when a run ends.
func SubjectResult(cid CID, run string) string {
	return "agent." + string(cid) + "." + run + ".result"
}

// InboxPrefix is the only prefix under which a client may receive replies.
func InboxPrefix(principal string) string { return "_INBOX." + principal }
