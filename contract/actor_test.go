package contract_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"choir.dev/choiros/contract"
)

// TestAnActorNeverHasMoreThanItsKind shows that no actor may do more than its kind, whatever it is
// given, and that a capability that was taken from an actor does not come back.
func TestAnActorNeverHasMoreThanItsKind(t *testing.T) {
	for _, kind := range contract.ActorKinds {
		whole := contract.Actor{Kind: kind, ID: "x"}
		for _, c := range contract.Capabilities {
			if whole.Can(c) != kind.Can(c) {
				t.Errorf("%s by itself: %s is %v", kind, c, whole.Can(c))
			}
			if given := whole.Only(c); given.Can(c) != kind.Can(c) || len(given.May()) > 1 {
				t.Errorf("%s with only %s may %v", kind, c, given.May())
			}
			if whole.Without(c).Can(c) || whole.Without(c).Only(c).Can(c) || whole.Only().Can(c) {
				t.Errorf("%s has %s although it was taken", kind, c)
			}
		}
		if got := whole.Only("everything", "*"); len(got.May()) != 0 {
			t.Errorf("%s with capabilities that there are not may %v", kind, got.May())
		}
	}
	for _, nobody := range []contract.Actor{{}, {Kind: "user"}, {Kind: "owner", ID: "x"}} {
		if len(nobody.May()) != 0 || nobody.Validate() == nil {
			t.Errorf("%+v may %v", nobody, nobody.May())
		}
	}
}

// TestEveryCapabilityIsSomebodys shows that each capability belongs to some kind of actor: one that
// nobody can have would mean nothing.
func TestEveryCapabilityIsSomebodys(t *testing.T) {
	if len(contract.Capabilities) > 32 {
		t.Fatal("a set holds 32 capabilities")
	}
	for _, c := range contract.Capabilities {
		if !slices.ContainsFunc(contract.ActorKinds, func(k contract.ActorKind) bool { return k.Can(c) }) {
			t.Errorf("nobody can %s", c)
		}
	}
}

func TestNamesOfActors(t *testing.T) {
	for _, a := range []contract.Actor{
		contract.Person("u-1"), contract.Person(""), contract.DesktopOf("u-1"), contract.System(), contract.DirectorOf("r"), contract.AssociateOf("t"),
		{Kind: contract.KindProgram, ID: "box-1", On: "u-1"}, {Kind: contract.KindApp, ID: "a:b", On: "u-1"},
	} {
		got, err := a.Name().Actor(a.On)
		if err != nil || got != a || a.Validate() != nil {
			t.Errorf("%s: %+v, %v", a.Name(), got, err)
		}
	}
	for _, bad := range []contract.ActorName{"", "user", "person:", ":x", "person: ", "person:a\nb", "person:\xff", "Person:x", contract.ActorName("app:" + strings.Repeat("x", 129))} {
		if _, err := bad.Actor("u-1"); err == nil || bad.Kind() != "" {
			t.Errorf("%q is an actor", bad)
		}
	}
	if _, err := contract.ActorName("system").Actor("a\nb"); err == nil {
		t.Error("an account of two lines")
	}
	if a := contract.Person("u-1"); a.Account() != "u-1" || contract.DesktopOf("u-1").Account() != "u-1" || contract.System().Account() != "" {
		t.Error("whose account it is")
	}
}

// TestEveryTypeSaysWhoMayAppendIt shows that every event type says who may append it and with which
// capability, and that the code of pages can't approve, configure, or append what only the host
// may.
func TestEveryTypeSaysWhoMayAppendIt(t *testing.T) {
	for _, info := range contract.Types() {
		for _, kind := range info.By {
			if !kind.Can(info.Needs) {
				t.Errorf("%s: a %s can't %s", info.Type, kind, info.Needs)
			}
		}
		if len(info.By) == 0 || info.Action && !(info.SaidBy(contract.KindPerson) && info.SaidBy(contract.KindApp)) {
			t.Errorf("%s is by %v", info.Type, info.By)
		}
		if info.SaidBy(contract.KindProgram) || info.SaidBy(contract.KindWorker) {
			t.Errorf("%s is said by the code in boxes", info.Type)
		}
	}
	for _, c := range []contract.Capability{contract.CanApprove, contract.CanSecrets, contract.CanMachine, contract.CanAccounts, contract.CanInvite, contract.CanEnter, contract.CanManage, contract.CanRecord} {
		if contract.KindApp.Can(c) {
			t.Errorf("an app can %s", c)
		}
	}
}

func TestWhoActedInOldEvents(t *testing.T) {
	cid := contract.NewCID()
	run, task := contract.DeriveID("a", "run"), contract.DeriveID("a", "task")
	for source, want := range map[string]contract.Actor{
		"user": contract.Person("u"), "director": {Kind: contract.KindDirector, ID: run, On: "u"}, "associate": {Kind: contract.KindAssociate, ID: task, On: "u"},
		"system": {Kind: contract.KindSystem, On: "u"},
	} {
		e := contract.Event{Source: "/computers/" + string(cid) + "/" + source, User: "u", Run: run, Task: task}
		if got := e.By(); got != want {
			t.Errorf("%s: %+v", source, got)
		}
	}
}

// TestActorAndSourceAgree shows that an event is refused if its actor and its source contradict
// each other, and that a person acts for nobody else.
func TestActorAndSourceAgree(t *testing.T) {
	cid := contract.NewCID()
	for _, c := range []struct {
		kind  string
		actor contract.ActorName
		user  string
		ok    bool
	}{
		{"person", "person:u", "u", true}, {"app", "app:desktop", "u", true}, {"user", "", "u", true}, {"system", "", "", true}, {"system", "system", "u", true},
		{"person", "", "u", false}, {"app", "", "u", false}, {"person", "app:desktop", "u", false}, {"user", "person:u", "u", false}, {"person", "person:u", "v", false},
		{"person", "person:u", "", false}, {"person", "person", "u", false}, {"system", "director:r", "", false}, {"robot", "robot:1", "", false},
	} {
		e := contract.Event{SpecVersion: "1.0", ID: contract.NewID(), Source: "/computers/" + string(cid) + "/" + c.kind, Type: "run.moved", Actor: c.actor, User: c.user,
			Sequence: 1, Epoch: 1, Computer: cid, Time: time.Unix(1, 0)}
		if err := e.Validate(); (err == nil) != c.ok {
			t.Errorf("%+v: %v", c, err)
		}
	}
}
