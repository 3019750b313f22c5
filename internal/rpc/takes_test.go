package rpc_test

import (
	"testing"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/rpc"
)

// Actors whose kind may call a method have the capability that it requires, others are
// refused, and so are actors that were not given the capability.
func TestWhatMethodsTakeOfActors(t *testing.T) {
	for _, m := range rpc.All() {
		d := m.About()
		for _, kind := range contract.ActorKinds {
			who := contract.Actor{Kind: kind, ID: "x"}
			for _, c := range d.Takes() {
				if d.AskedBy(kind) && !kind.Can(c) {
					t.Errorf("%s is asked by a %s, who can't %s", d.Name, kind, c)
				}
				if d.Permits(who.Without(c)) == nil {
					t.Errorf("%s is asked by a %s who was not given %s", d.Name, kind, c)
				}
			}
			if err := d.Permits(who); (err == nil) != d.AskedBy(kind) {
				t.Errorf("%s asked by a %s: %v", d.Name, kind, err)
			}
		}
		if d.Permits(contract.Actor{}) == nil {
			t.Errorf("%s is asked by nobody", d.Name)
		}
	}
}

// Every capability is required somewhere: one that no method and no event type requires
// would mean nothing, and taking it from somebody would change nothing.
func TestEveryCapabilityIsAsked(t *testing.T) {
	asked := map[contract.Capability]bool{}
	for _, m := range rpc.All() {
		for _, c := range m.About().Takes() {
			asked[c] = true
		}
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

// A method whose declaration names no capability, or one that does not exist, can be called
// by nobody, whatever they may do.
func TestAMethodWithoutACapabilityIsNobodys(t *testing.T) {
	for _, d := range []rpc.Declared{
		{Name: "x", Callers: rpc.API | rpc.Desktop}, {Name: "x", Callers: rpc.API | rpc.Desktop, May: "everything"},
		{Name: "x", Callers: rpc.API | rpc.Desktop, May: contract.CanRead, Also: "everything"}, {Name: "x", Callers: rpc.API | rpc.Desktop, Also: contract.CanRead},
	} {
		for _, kind := range contract.ActorKinds {
			if d.Permits(contract.Actor{Kind: kind, ID: "x"}) == nil {
				t.Errorf("%+v is asked by a %s", d, kind)
			}
		}
	}
}
