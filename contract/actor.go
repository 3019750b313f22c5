package contract

import (
	"strings"
	"unicode"
)

// ActorKind is what somebody is who asks something of a computer or adds to its
// log: the last element of an event's source, and a token of its NATS subject.
type ActorKind string

// The kinds. What each may do by itself stands in kinds, below.
const (
	// KindPerson is somebody with an account, at the console or by a program of
	// their own that holds a token.
	KindPerson ActorKind = "person"
	// KindApp is the code of a page that acts for a person in their browser: the
	// desktop. A person did not press everything that it says they did.
	KindApp ActorKind = "app"
	// KindProgram is a program in a box, such as one started in a terminal.
	KindProgram ActorKind = "program"
	// KindDirector is the loop that plans a run, KindAssociate the one that carries a task out.
	KindDirector  ActorKind = "director"
	KindAssociate ActorKind = "associate"
	// KindWorker is the code in a task's or a check's box. Its Associate speaks for it.
	KindWorker ActorKind = "worker"
	// KindSystem is the host: recovery, automatic checkpoints, what it measures.
	KindSystem ActorKind = "system"
)

// Capability is something that an actor may do. Every event type and every
// method names the one that it takes.
type Capability string

// The capabilities.
const (
	CanRead      Capability = "read"       // see files, documents, runs and events
	CanPrompt    Capability = "prompt"     // say what is wanted: prompts, answers, words to a run and its end
	CanWrite     Capability = "write"      // change files and documents
	CanExec      Capability = "exec"       // run commands on the live tree
	CanRestore   Capability = "restore"    // checkpoint, go back, undo
	CanArrange   Capability = "arrange"    // windows, and what else only looks different
	CanApprove   Capability = "approve"    // allow what reaches beyond the computer
	CanManage    Capability = "manage"     // one computer: its name, waking, recovery, export
	CanEnter     Capability = "enter"      // let a page into the desktop
	CanConfigure Capability = "configure"  // the machine: its secrets and models
	CanInvite    Capability = "invite"     // make links that sign in
	CanPlan      Capability = "plan"       // plan a run, hand out its tasks, ask its person, report
	CanWork      Capability = "work"       // use tools, end a task
	CanPropose   Capability = "propose"    // change documents if a person accepts it
	CanThink     Capability = "think"      // call models
	CanAskEgress Capability = "egress.ask" // ask for a host that was not granted
	CanRecord    Capability = "record"     // what the host alone knows
)

// Capabilities lists every capability.
var Capabilities = []Capability{CanRead, CanPrompt, CanWrite, CanExec, CanRestore, CanArrange, CanApprove, CanManage, CanEnter,
	CanConfigure, CanInvite, CanPlan, CanWork, CanPropose, CanThink, CanAskEgress, CanRecord}

// kinds is what an actor of each kind may do when nothing was taken from it.
var kinds = map[ActorKind]capabilities{
	KindPerson: setOf(CanRead, CanPrompt, CanWrite, CanExec, CanRestore, CanArrange, CanApprove, CanManage, CanEnter, CanConfigure, CanInvite),
	// Code that anybody may have written approves nothing and knows no secret.
	KindApp: setOf(CanRead, CanPrompt, CanWrite, CanExec, CanRestore, CanArrange),
	// A box is hostile: what a program in it may do is what was asked for and granted, later.
	KindProgram:   setOf(),
	KindWorker:    setOf(),
	KindDirector:  setOf(CanPlan, CanWrite, CanPropose, CanThink),
	KindAssociate: setOf(CanWork, CanWrite, CanPropose, CanThink, CanAskEgress),
	KindSystem:    setOf(CanRecord, CanPrompt, CanWrite, CanPropose, CanRestore, CanApprove, CanPlan, CanWork, CanExec),
}

// ActorKinds lists every kind, those of people first.
var ActorKinds = []ActorKind{KindPerson, KindApp, KindProgram, KindDirector, KindAssociate, KindWorker, KindSystem}

// Valid reports whether k is one of the kinds.
func (k ActorKind) Valid() bool { _, ok := kinds[k]; return ok }

// Client reports whether the kind is a person, or acts for one who asked through
// a door: apps and programs.
func (k ActorKind) Client() bool { return k == KindPerson || k == KindApp || k == KindProgram }

// Can reports whether an actor of the kind may do c when nothing was taken from it.
func (k ActorKind) Can(c Capability) bool { return kinds[k]&setOf(c) != 0 }

// Actor is who asks, or who acted. The zero value is nobody, who may do nothing.
type Actor struct {
	Kind ActorKind
	// ID says which one: a person's account, an app's name, a program's box, a
	// Director's run, an Associate's task. The host has none.
	ID string
	// On is the account on whose behalf, of whoever is not a person; "" when
	// nobody asked.
	On string

	lacks capabilities // what was taken from its kind's: so it never has more
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

// Account is the account that answers for what the actor does, "" when it is
// not known to be anybody's.
func (a Actor) Account() string {
	if a.Kind == KindPerson {
		return a.ID
	}
	return a.On
}

// Can reports whether the actor may do c.
func (a Actor) Can(c Capability) bool { return (kinds[a.Kind]&^a.lacks)&setOf(c) != 0 }

// Only returns the actor with no more than the capabilities that are named. It
// gives none that the actor has not, and what this version does not know is
// nothing.
func (a Actor) Only(some ...Capability) Actor {
	a.lacks |= ^setOf(some...)
	return a
}

// Without returns the actor without the capabilities that are named.
func (a Actor) Without(some ...Capability) Actor {
	a.lacks |= setOf(some...)
	return a
}

// May lists what the actor may do.
func (a Actor) May() []Capability {
	var out []Capability
	for _, c := range Capabilities {
		if a.Can(c) {
			out = append(out, c)
		}
	}
	return out
}

// Name is the actor as events carry it: its kind and, after a colon, its id.
func (a Actor) Name() ActorName {
	if a.ID == "" {
		return ActorName(a.Kind)
	}
	return ActorName(string(a.Kind) + ":" + a.ID)
}

// Validate reports whether the actor can be written down.
func (a Actor) Validate() error {
	if err := a.Name().Validate(); err != nil {
		return err
	}
	return checkLine("user", a.On, maxActorID)
}

// ActorName is an actor as it is written down: "person:u-1", "app:desktop",
// "system". On whose behalf it acted stands beside it.
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

// Actor is whom n names, on behalf of an account.
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

// capabilities is a set of them.
type capabilities uint32

// setOf makes a set; what is no capability is not in it.
func setOf(some ...Capability) (s capabilities) {
	for _, c := range some {
		for i, known := range Capabilities {
			if c == known {
				s |= 1 << i
			}
		}
	}
	return s
}

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
