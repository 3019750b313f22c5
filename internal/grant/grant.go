package grant

import (
	"errors"
	"fmt"
	"slices"

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

// Known says whether it is a member's role.
func (r Role) Known() bool { return slices.Contains(ranks[1:], r) }

// AtLeast says whether a role may what another may. What is no role may nothing,
// and nobody has as much as a role that is none.
func (r Role) AtLeast(least Role) bool {
	return r.Known() && least.Known() && slices.Index(ranks, r) >= slices.Index(ranks, least)
}

// Power is a part of the machine's administration. No role in any computer
// brings one, and no power makes anybody a member of a computer.
type Power string

// The powers.
const (
	Secrets   Power = "secrets"   // the vault: list, store, remove
	Models    Power = "models"    // test a model at the machine's cost
	Machine   Power = "machine"   // doctor, upkeep, recovery
	Computers Power = "computers" // make computers
	Accounts  Power = "accounts"  // invite accounts, remove them, give powers
)

// Powers lists them all.
func Powers() []Power { return []Power{Secrets, Models, Machine, Computers, Accounts} }

// Known says whether it is a power.
func (p Power) Known() bool { return slices.Contains(Powers(), p) }

// Rule is what a method takes. The zero rule lets nobody in.
type Rule struct {
	Account bool  // an account, and nothing more
	Role    Role  // this role at least, in the computer that is asked
	Power   Power // this power; with a role, both
}

// What methods take.
var (
	Anyone = Rule{Account: true}
	View   = Rule{Role: Viewer}
	Edit   = Rule{Role: Editor}
	Own    = Rule{Role: Owner}
)

// With is the rule that takes a power.
func With(p Power) Rule { return Rule{Power: p} }

// Says tells whether a rule says anything, and nothing that there is not.
func (r Rule) Says() bool {
	return r != Rule{} && (r.Role == None || r.Role.Known()) && (r.Power == "" || r.Power.Known())
}

// Holder is what somebody was granted: machine-wide, and in one computer.
type Holder struct {
	Account string
	Role    Role
	Powers  []Power
}

// errNone is said of a computer that there is not, and of one that is somebody
// else's: nobody can tell the two apart.
var errNone = errors.New("there is no such computer")

// NoComputer is the answer about both.
func NoComputer() error {
	return fault.New("", fault.NotFound, "choir computers lists yours, and choir computers create NAME makes one.", errNone)
}

// Decide returns nil when who holds h may what r is about: fault.NotFound to
// whoever is no member of the computer, fault.Denied otherwise.
func (r Rule) Decide(h Holder) error {
	if h.Account == "" {
		return fault.New("", fault.Denied, "Sign in.", errors.New("nobody is signed in"))
	}
	if !r.Says() {
		return fault.New("", fault.Denied, "", errors.New("nobody may do this"))
	}
	if r.Role != None {
		if err := r.member(h); err != nil {
			return err
		}
	}
	if r.Power != "" && !slices.Contains(h.Powers, r.Power) && !defence.Off(defence.GrantPower) {
		return fault.New("", fault.Denied, "Ask who administers this machine.", fmt.Errorf("this takes the power %q, which this account has not got", r.Power))
	}
	return nil
}

func (r Rule) member(h Holder) error {
	if h.Role == None {
		if defence.Off(defence.GrantMember) {
			return nil
		}
		return NoComputer()
	}
	if !h.Role.AtLeast(r.Role) && !defence.Off(defence.GrantRole) {
		return fault.New("", fault.Denied, "Ask one of its owners.", fmt.Errorf("this takes the role %s in this computer; yours is %s", r.Role, h.Role))
	}
	return nil
}
