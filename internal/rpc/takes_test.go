package rpc_test

import (
	"testing"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/rpc"
)

// Whoever may ask a method by their kind can do what it takes, and nobody else is
// let in; who was not given it is not.
func TestWhatMethodsTakeOfActors(t *testing.T) {
	for _, m := range rpc.All() {
		d := m.About()
		for _, kind := range contract.ActorKinds {
			who := contract.Actor{Kind: kind, ID: "x"}
			if d.AskedBy(kind) && !kind.Can(d.Takes()) {
				t.Errorf("%s is asked by a %s, who can't %s", d.Name, kind, d.Takes())
			}
			if err := d.Permits(who); (err == nil) != d.AskedBy(kind) {
				t.Errorf("%s asked by a %s: %v", d.Name, kind, err)
			}
			if d.Permits(who.Without(d.Takes())) == nil {
				t.Errorf("%s is asked by a %s who was not given %s", d.Name, kind, d.Takes())
			}
		}
		if d.Permits(contract.Actor{}) == nil {
			t.Errorf("%s is asked by nobody", d.Name)
		}
	}
}

// What a kind of actor can is asked somewhere: a capability that no method and no event
// type takes is a word without meaning, and taking it from somebody changes nothing.
func TestEveryCapabilityIsAsked(t *testing.T) {
	asked := map[contract.Capability]bool{}
	for _, m := range rpc.All() {
		asked[m.About().Takes()] = true
	}
	for _, info := range contract.Types() {
		asked[info.Needs] = true
	}
	for _, c := range contract.Capabilities {
		if !asked[c] {
			t.Errorf("nothing takes %s", c)
		}
	}
}

// A method of which nothing says what it takes is asked by nobody.
func TestWhatTakesNothingIsAskedByNobody(t *testing.T) {
	d := rpc.Declared{Name: "nobody.said", Doors: rpc.API | rpc.Desktop}
	for _, kind := range contract.ActorKinds {
		if d.Permits(contract.Actor{Kind: kind, ID: "x"}) == nil {
			t.Errorf("it is asked by a %s", kind)
		}
	}
}
