package rpc

import (
	"errors"
	"fmt"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/defence"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/grant"
)

// Takes lists the capabilities that a method requires of its caller.
func (d Declared) Takes() []contract.Capability {
	if d.Also == "" {
		return []contract.Capability{d.May}
	}
	return []contract.Capability{d.May, d.Also}
}

// says reports whether a declaration names the capabilities that the method requires, and
// only existing ones.
func (d Declared) says() bool {
	return contract.SetOf(d.May) != 0 && (d.Also == "" || contract.SetOf(d.Also) != 0)
}

// AskedBy reports whether actors of a kind may call a method: people over HTTP, a desktop's
// code on the bus, and nobody else.
func (d Declared) AskedBy(kind contract.ActorKind) bool {
	switch kind {
	case contract.KindPerson:
		return d.Callers&API != 0
	case contract.KindApp:
		return d.Callers&Desktop != 0
	}
	return false
}

// Permits refuses an actor who may not call a method. It is the one place that checks an
// actor, whose capabilities are already limited to those of its kind, role, powers and
// token. HTTP and bus call it before anything is done.
func (d Declared) Permits(who contract.Actor) error {
	if !d.AskedBy(who.Kind) && !defence.Off(defence.ActorAsk) {
		return fault.New("", fault.Denied, "", fmt.Errorf("%s may not be asked by %s", d.Name, kindOf(who)))
	}
	if !d.says() {
		return fault.New("", fault.Denied, "", errors.New("nobody may do this"))
	}
	for _, c := range d.Takes() {
		if !who.Can(c) && !defence.Off(defence.ActorAskPower) {
			return grant.Refuse(c)
		}
	}
	return nil
}

func kindOf(who contract.Actor) string {
	if !who.Kind.Valid() {
		return "nobody"
	}
	return "whoever is of the kind " + string(who.Kind)
}
