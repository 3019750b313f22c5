package summary

import (
	"fmt"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/harness"
	story "choir.dev/choiros/internal/run"
)

// Bounds of what is told of effects outside: of one, in bytes, and how many.
const (
	maxOutside = 400
	maxUnknown = 10
)

// Outside is an effect on one line.
func Outside(e contract.EffectOutside) string {
	said := fmt.Sprintf("%s: %s %s (effect %s)", e.Outcome, OneLine(e.Target, 200), OneLine(e.What, maxOutside), e.Effect)
	if e.Outcome == contract.EffectUnknown {
		said += ": it may have happened, and is not made again by itself"
	}
	return said
}

// MayHaveHappened is what a loop is told of its call whose outcome is unknown.
func MayHaveHappened(e contract.EffectIntended) string {
	said := fmt.Sprintf("Unknown: it may have happened outside (%s, effect %s", e.Target, e.Effect)
	if e.Key != "" {
		said += ", idempotency key " + e.Key
	}
	return said + "). It is not made again by itself, and the same call is refused. Look first whether it happened; if you can't tell, end with a request of type approval that names the effect."
}

// lostReturn is what a loop is told of a call that changed something outside and whose return is not in the log.
func lostReturn(e *story.Effect) string {
	detail := ""
	if e.Ended != nil {
		detail = e.Ended.Detail
	}
	switch e.Outcome() {
	case contract.EffectDone:
		return fmt.Sprintf("It is done outside (%s, effect %s); the computer ended before its answer was shown. Do not make it again. The answer's beginning: %s", e.Target, e.Effect, detail)
	case contract.EffectFailed:
		return fmt.Sprintf("It failed outside (%s, effect %s); the computer ended before its answer was shown. The answer's beginning: %s", e.Target, e.Effect, detail)
	}
	return MayHaveHappened(e.EffectIntended)
}

// doneOutside is a sentence about what was done outside, behind another; "" if nothing was.
func doneOutside(s *story.Run) string {
	n := 0
	for _, e := range s.Effects {
		if e.Outcome() == contract.EffectDone {
			n++
		}
	}
	switch n {
	case 0:
		return ""
	case 1:
		return " Outside, 1 call is done: choir effects --run " + s.ID
	}
	return fmt.Sprintf(" Outside, %d calls are done: choir effects --run %s", n, s.ID)
}

// unknownOutside says in a report what may have happened outside.
func unknownOutside(s *story.Run) []string {
	var out []string
	for _, e := range s.Effects {
		if e.Outcome() != contract.EffectUnknown {
			continue
		}
		if len(out) == maxUnknown {
			return append(out, "More of what was done outside is unknown: choir effects --outcome unknown lists it.")
		}
		out = append(out, fmt.Sprintf("Whether this happened outside is not known: %s %s. It was not made again. Look, and say what you found: choir effects resolve %s --done, or --not-done.",
			OneLine(e.Target, 200), harness.Clip(OneLine(e.What, 300), 300), e.Effect))
	}
	return out
}
