package contract

import (
	"strings"
	"unicode"
)

// ActorKind says what sort of actor asks something of a computer or adds to its log: the
// last element of an event's source, and a token of its NATS subject.
type ActorKind string

// The kinds. What each may do by itself stands in kinds, below.
const (
	// KindPerson is somebody with an account, at the console or by a program of
	// their own that holds a token.
	KindPerson ActorKind = "person"
	// KindApp is the code of a page that acts for a person in their browser: the desktop.
	// The person need not have done everything that it says they did.
	KindApp ActorKind = "app"
	// KindProgram is a program in a box, such as one started in a terminal.
	KindProgram ActorKind = "program"
	// KindDirector is the loop that plans a run, KindAssociate the one that carries a task out.
	KindDirector  ActorKind = "director"
	KindAssociate ActorKind = "associate"
	// KindWorker is the code in a task's or a check's box. Its events are appended by its
	// Associate.
	KindWorker ActorKind = "worker"
	// KindSystem is the host: recovery, automatic checkpoints, what it measures.
	KindSystem ActorKind = "system"
)

// Capability is something that an actor may do. Every event type and every method names the
// one that it requires, and so do the paths of a desktop's origin.
type Capability string

// The capabilities of people, and of what acts for them. In one computer:
const (
	CanRead    Capability = "read"    // see files, documents, runs and events
	CanPrompt  Capability = "prompt"  // say what is wanted: prompts, answers, words to a run and its end
	CanWrite   Capability = "write"   // change files and documents, by oneself or by agents; git push
	CanExec    Capability = "exec"    // run commands on the live tree, at a terminal or without one
	CanRestore Capability = "restore" // checkpoint, go back, undo
	CanArrange Capability = "arrange" // windows, the computer's name, and trying again to wake it
	CanNetwork Capability = "network" // have agents reach hosts beyond this machine, and ask for more of them
	CanApprove Capability = "approve" // allow what reaches beyond the computer
	CanManage  Capability = "manage"  // remove a computer and put it back, rebuild and recover it, export all of it
	CanEnter   Capability = "enter"   // let a page into the desktop
	CanInvite  Capability = "invite"  // let others in, and say as what
)

// Of an account, and of the machine; those of the machine are granted as powers
// (internal/grant), which have the same names.
const (
	CanSelf      Capability = "self"      // the account's own: its tokens, its sessions, joining and leaving computers
	CanSecrets   Capability = "secrets"   // the vault: list, store, remove
	CanModels    Capability = "models"    // test a model at the machine's cost
	CanMachine   Capability = "machine"   // doctor, upkeep, recovery
	CanComputers Capability = "computers" // make computers
	CanAccounts  Capability = "accounts"  // invite accounts, remove them, give powers
)

// Of agents and of the host.
const (
	CanPlan    Capability = "plan"    // plan a run, hand out its tasks, ask its person, report
	CanWork    Capability = "work"    // use tools, end a task
	CanPropose Capability = "propose" // change documents if a person accepts it
	CanThink   Capability = "think"   // call models
	CanRecord  Capability = "record"  // what the host alone knows
)

// Capabilities lists every capability, those of people first.
var Capabilities = []Capability{CanRead, CanPrompt, CanWrite, CanExec, CanRestore, CanArrange, CanNetwork, CanApprove, CanManage, CanEnter,
	CanInvite, CanSelf, CanSecrets, CanModels, CanMachine, CanComputers, CanAccounts, CanPlan, CanWork, CanPropose, CanThink, CanRecord}

// kinds is what an actor of each kind may do when nothing was taken from it. A person's
// role in a computer, powers over the machine and the scope of the token in use limit it
// further (internal/grant).
var kinds = map[ActorKind]CapabilitySet{
	KindPerson: SetOf(CanRead, CanPrompt, CanWrite, CanExec, CanRestore, CanArrange, CanNetwork, CanApprove, CanManage, CanEnter, CanInvite,
		CanSelf, CanSecrets, CanModels, CanMachine, CanComputers, CanAccounts),
	// Code that anybody may have written approves nothing and reads no secret.
	KindApp: SetOf(CanRead, CanPrompt, CanWrite, CanExec, CanRestore, CanArrange, CanNetwork),
	// A box is hostile, so what runs in one asks nothing and appends nothing: its acts are
	// recorded by whoever let it run. A program of a terminal is the person's command,
	// whose start and end are theirs; a worker's tool calls are those of its Associate,
	// which is outside the box.
	KindProgram:   SetOf(),
	KindWorker:    SetOf(),
	KindDirector:  SetOf(CanPlan, CanWrite, CanPropose, CanThink),
	KindAssociate: SetOf(CanWork, CanWrite, CanPropose, CanThink, CanNetwork),
	KindSystem:    SetOf(CanRecord, CanPrompt, CanWrite, CanPropose, CanRestore, CanApprove, CanPlan, CanWork, CanExec),
}

// TokenCapabilities is what a token may be made for: all that people may do, except what takes a
// person on the console, which no program does for them, and CanNetwork, which no run is
// held to yet.
var TokenCapabilities = []Capability{CanRead, CanPrompt, CanWrite, CanExec, CanRestore, CanArrange, CanManage, CanInvite,
	CanSelf, CanSecrets, CanModels, CanMachine, CanComputers, CanAccounts}

// ActorKinds lists every kind, those of people first.
var ActorKinds = []ActorKind{KindPerson, KindApp, KindProgram, KindDirector, KindAssociate, KindWorker, KindSystem}

// Valid reports whether k is one of the kinds.
func (k ActorKind) Valid() bool { _, ok := kinds[k]; return ok }

// Client reports whether the kind is a person, or acts for one who asked from outside: apps
// and programs.
func (k ActorKind) Client() bool { return k == KindPerson || k == KindApp || k == KindProgram }

// Can reports whether an actor of the kind may do c when nothing was taken from it.
func (k ActorKind) Can(c Capability) bool { return kinds[k].Has(c) }

// Actor is who asks, or who acted. The zero value is nobody, who may do nothing.
type Actor struct {
	Kind ActorKind
	// ID says which one: a person's account, an app's name, a program's box, a
	// Director's run, an Associate's task. The host has none.
	ID string
	// On is the account that an actor other than a person acts for; "" when nobody asked.
	On string

	lacks CapabilitySet // what was taken from its kind's capabilities, so that it never has more
}

// Person is somebody with an account.
func Person(account string) Actor { return Actor{Kind: KindPerson, ID: account} }

// DesktopOf is the desktop's code, acting for an account.
func DesktopOf(account string) Actor { return Actor{Kind: KindApp, ID: "desktop", On: account} }

// System is the host.
func System() Actor { return Actor{Kind: KindSystem} }

// DirectorOf is the Director of a run.
func DirectorOf(run string) Actor { return Actor{Kind: KindDirector, ID: run} }

// AssociateOf is the Associate of a task.
func AssociateOf(task string) Actor { return Actor{Kind: KindAssociate, ID: task} }

// Account is the account that answers for what the actor does, "" when none is known to.
func (a Actor) Account() string {
	if a.Kind == KindPerson {
		return a.ID
	}
	return a.On
}

// Can reports whether the actor may do c.
func (a Actor) Can(c Capability) bool { return (kinds[a.Kind] &^ a.lacks).Has(c) }

// Only returns the actor with no more than the capabilities that are named. It adds none,
// and names that this version does not know are ignored.
func (a Actor) Only(some ...Capability) Actor { return a.Within(SetOf(some...)) }

// Within returns the actor with no more than what is in a set.
func (a Actor) Within(s CapabilitySet) Actor {
	a.lacks |= ^s
	return a
}

// Without returns the actor without the capabilities that are named.
func (a Actor) Without(some ...Capability) Actor {
	a.lacks |= SetOf(some...)
	return a
}

// May lists what the actor may do.
func (a Actor) May() []Capability { return (kinds[a.Kind] &^ a.lacks).List() }

// Lacks lists what was taken from the actor of what its kind may do.
func (a Actor) Lacks() []Capability { return (kinds[a.Kind] & a.lacks).List() }

// Name is the actor as events carry it: its kind and, after a colon, its id.
func (a Actor) Name() ActorName {
	if a.ID == "" {
		return ActorName(a.Kind)
	}
	return ActorName(string(a.Kind) + ":" + a.ID)
}

// Validate reports whether the actor can be written into an event.
func (a Actor) Validate() error {
	if err := a.Name().Validate(); err != nil {
		return err
	}
	return checkLine("user", a.On, maxActorID)
}

// ActorName is an actor as events store it: "person:u-1", "app:desktop", "system". The
// account that it acted for is stored beside it.
type ActorName string

const (
	maxActorID   = 128
	maxActorName = maxActorID + 16
)

// Validate reports whether n has an actor's form.
func (n ActorName) Validate() error {
	kind, id, named := strings.Cut(string(n), ":")
	if !ActorKind(kind).Valid() || named && id == "" {
		return fieldErr("actor", "is %q; it must be a kind and, after a colon, an id, such as person:u-1", Shorten(string(n), 60))
	}
	return checkLine("actor", id, maxActorID)
}

// Kind is the kind of the actor, "" when n is none.
func (n ActorName) Kind() ActorKind {
	if n.Validate() != nil {
		return ""
	}
	kind, _, _ := strings.Cut(string(n), ":")
	return ActorKind(kind)
}

// Actor is the actor that n names, acting for an account.
func (n ActorName) Actor(account string) (Actor, error) {
	if err := n.Validate(); err != nil {
		return Actor{}, err
	}
	kind, id, _ := strings.Cut(string(n), ":")
	a := Actor{Kind: ActorKind(kind), ID: id, On: account}
	if a.Kind == KindPerson {
		a.On = ""
	}
	return a, a.Validate()
}

// CapabilitySet is a set of capabilities. The zero value is none of them.
type CapabilitySet uint32

// SetOf makes a set; what is no capability is not in it.
func SetOf(some ...Capability) (s CapabilitySet) {
	for _, c := range some {
		for i, known := range Capabilities {
			if c == known {
				s |= 1 << i
			}
		}
	}
	return s
}

// Has reports whether c is in the set. What is no capability is in none.
func (s CapabilitySet) Has(c Capability) bool { return s&SetOf(c) != 0 }

// List lists what is in the set.
func (s CapabilitySet) List() []Capability {
	var out []Capability
	for i, c := range Capabilities {
		if s&(1<<i) != 0 {
			out = append(out, c)
		}
	}
	return out
}

// Everything is the set of all capabilities.
func Everything() CapabilitySet { return SetOf(Capabilities...) }

// checkLine checks one line of text that may be empty.
func checkLine(field, s string, max int) error {
	if err := text(field, s, max, false); err != nil {
		return err
	}
	if s != "" && (strings.TrimSpace(s) == "" || strings.ContainsFunc(s, unicode.IsControl)) {
		return fieldErr(field, "is blank or has control characters")
	}
	return nil
}
