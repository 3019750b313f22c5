package grant

import (
	"errors"
	"fmt"
	"slices"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/defence"
	"choir.dev/choiros/internal/fault"
)

// Role is what a member may do in a computer; each may what those before it may.
type Role string

// The roles. None is that of whoever is no member.
const (
	None   Role = ""
	Viewer Role = "viewer" // sees everything, changes nothing
	Editor Role = "editor" // prompts, runs commands, changes files, goes back
	Owner  Role = "owner"  // lets others in, allows what reaches beyond the computer
)

var ranks = []Role{None, Viewer, Editor, Owner}

// brings is what a role allows in its computer beyond the role before it.
func (r Role) brings() contract.CapabilitySet {
	switch r {
	case Viewer:
		return contract.SetOf(contract.CanRead, contract.CanEnter, contract.CanSelf)
	case Editor:
		return contract.SetOf(contract.CanPrompt, contract.CanWrite, contract.CanExec, contract.CanRestore, contract.CanArrange, contract.CanNetwork)
	case Owner:
		return contract.SetOf(contract.CanApprove, contract.CanManage, contract.CanInvite)
	}
	return 0
}

// Known says whether it is a member's role.
func (r Role) Known() bool { return slices.Contains(ranks[1:], r) }

// AtLeast says whether a role may do what another may. A value that is no role may do
// nothing, and no role reaches one that is none.
func (r Role) AtLeast(least Role) bool {
	return r.Known() && least.Known() && slices.Index(ranks, r) >= slices.Index(ranks, least)
}

// May is the set of capabilities that a role has in its computer; that of a value that is
// no role is empty.
func (r Role) May() (s contract.CapabilitySet) {
	for _, below := range ranks[1:] {
		if r.AtLeast(below) {
			s |= below.brings()
		}
	}
	return s
}

// Power is a part of the machine's administration, and the capability of the same
// name. No role in any computer brings one, and no power makes anybody a member of a
// computer.
type Power string

// The powers.
const (
	Secrets   = Power(contract.CanSecrets)
	Models    = Power(contract.CanModels)
	Machine   = Power(contract.CanMachine)
	Computers = Power(contract.CanComputers)
	Accounts  = Power(contract.CanAccounts)
)

// Powers lists them all.
func Powers() []Power { return []Power{Secrets, Models, Machine, Computers, Accounts} }

// Known says whether it is a power.
func (p Power) Known() bool { return slices.Contains(Powers(), p) }

// Holder is what somebody was granted: machine-wide, and in one computer.
type Holder struct {
	Account string
	Role    Role
	Powers  []Power
}

// errNone is the error both for a computer that does not exist and for one that belongs to
// others: callers can't tell the two apart.
var errNone = errors.New("there is no such computer")

// NoComputer is the refusal for both.
func NoComputer() error {
	return fault.New("", fault.NotFound, "choir computers lists yours, and choir computers create NAME makes one.", errNone)
}

// Inside returns the actor with the capabilities that it has in the computer: no more than
// h allows, and no more than scope, which is what its token or session was made for. It is
// fault.NotFound to whoever is no member.
func (h Holder) Inside(who contract.Actor, scope contract.CapabilitySet) (contract.Actor, error) {
	role := h.Role
	if role == None && !defence.Off(defence.GrantMember) {
		return contract.Actor{}, NoComputer()
	}
	if role == None || defence.Off(defence.GrantRole) {
		role = Owner
	}
	return h.bound(who, role.May(), scope)
}

// Outside returns the actor with the capabilities that it has where no computer is
// concerned: no more than h allows, and no more than scope. Each account may list its own
// computers, see whom it is signed in as, and manage its tokens.
func (h Holder) Outside(who contract.Actor, scope contract.CapabilitySet) (contract.Actor, error) {
	return h.bound(who, contract.SetOf(contract.CanRead, contract.CanSelf), scope)
}

// bound is the one place in which all limits of an actor are intersected: those of its
// kind, which it never exceeds, what was granted, and the scope of its token or session.
func (h Holder) bound(who contract.Actor, granted, scope contract.CapabilitySet) (contract.Actor, error) {
	if h.Account == "" {
		return contract.Actor{}, fault.New("", fault.Denied, "Sign in.", errors.New("nobody is signed in"))
	}
	powers := h.Powers
	if defence.Off(defence.GrantPower) {
		powers = Powers()
	}
	for _, p := range powers {
		if p.Known() {
			granted |= contract.SetOf(contract.Capability(p))
		}
	}
	if defence.Off(defence.GrantScope) {
		scope = contract.Everything()
	}
	return who.Within(granted & scope), nil
}

// Refuse is the refusal to whoever lacks a capability. It says who can give it: whoever
// made the token, or whoever can grant it.
func Refuse(c contract.Capability) error {
	hint := "Ask who administers this machine for it"
	for _, r := range ranks[1:] {
		if r.brings().Has(c) {
			hint = "Ask one of the computer's owners for the role " + string(r)
			break
		}
	}
	return fault.New("", fault.Denied, hint+", or use a token that was made with it.", fmt.Errorf("this takes the capability %q, which was not given to you here", c))
}
