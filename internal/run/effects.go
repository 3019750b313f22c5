package run

import (
	"slices"

	"choir.dev/choiros/contract"
)

// maxWhat bounds what a result says of the arguments of an effect, in bytes.
const maxWhat = 300

// Effect is a call that changes something outside, or may have.
type Effect struct {
	contract.EffectIntended
	Task     string
	Sequence uint64                   // of effect.intended
	Ended    *contract.EffectEnded    // nil while it is under way
	Resolved *contract.EffectResolved // a person's word on what is unknown
}

// Outcome is what is known of it, a person's word included; "" while it is under way.
func (e *Effect) Outcome() contract.EffectOutcome {
	switch {
	case e.Ended == nil:
		return ""
	case e.Resolved == nil:
		return e.Ended.Outcome
	}
	return e.Resolved.Found.Outcome()
}

// Outside is the effect as a result names it; one that is under way is unknown to whoever reads that.
func (e *Effect) Outside() contract.EffectOutside {
	o := e.Outcome()
	if o == "" {
		o = contract.EffectUnknown
	}
	return contract.EffectOutside{Effect: e.Effect, Kind: e.Kind, Target: e.Target, What: contract.Shorten(e.What, maxWhat), Outcome: o, Key: e.Key}
}

// Effect finds an effect by its id, nil when there is none.
func (r *Run) Effect(id string) *Effect {
	for _, e := range r.Effects {
		if e.Effect == id {
			return e
		}
	}
	return nil
}

// Spent reports whether an effect used what a person allowed one time.
func (r *Run) Spent(approval string) bool {
	return slices.ContainsFunc(r.Effects, func(e *Effect) bool { return e.Approval == approval && approval != "" })
}

// EffectsOf lists what an attempt changed outside, or may have, at most so many: those whose outcome is unknown first, then
// the newest.
func (r *Run) EffectsOf(task string, attempt, most int) []contract.EffectOutside {
	var unknown, known []contract.EffectOutside
	for _, e := range slices.Backward(r.Effects) {
		if e.Task != task || e.Attempt != attempt {
			continue
		}
		if o := e.Outside(); o.Outcome == contract.EffectUnknown {
			unknown = append(unknown, o)
		} else {
			known = append(known, o)
		}
	}
	all := append(unknown, known...)
	return all[:min(len(all), most)]
}

// applyEffect applies an event about an effect. The first word of each kind counts.
func (r *Run) applyEffect(e contract.Event, p contract.Payload) bool {
	switch p := p.(type) {
	case *contract.EffectIntended:
		if r.Effect(p.Effect) != nil {
			break
		}
		at := &Effect{EffectIntended: *p, Task: e.Task, Sequence: e.Sequence}
		r.Effects = append(r.Effects, at)
		if t := r.Task(e.Task); t != nil && t.Now.Number == p.Attempt {
			if t.Outside == nil {
				t.Outside = map[string]*Effect{}
			}
			t.Outside[p.Call] = at
		}
	case *contract.EffectEnded:
		if at := r.Effect(p.Effect); at != nil && at.Ended == nil {
			at.Ended = p
		}
	case *contract.EffectResolved:
		if at := r.Effect(p.Effect); at != nil && at.Outcome() == contract.EffectUnknown {
			at.Resolved = p
		}
	default:
		return false
	}
	return true
}
