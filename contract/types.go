package contract

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"sort"
)

// BoxKind names what a box is for; it decides what the box may do.
type BoxKind string

// The kinds of box.
const (
	BoxDirector  BoxKind = "director"  // the planning loop: models, no workspace
	BoxAssociate BoxKind = "associate" // the executing loop: models, tools through the host, no workspace
	BoxTask      BoxKind = "task"      // agent code on an overlay
	BoxVerify    BoxKind = "verify"    // one per check, on the task's tree with a throwaway upper
	BoxTerminal  BoxKind = "terminal"  // the user's own commands, on the live tree
	BoxDesktop   BoxKind = "desktop"   // Vite, on live choiros/ read-only
	BoxKeeper    BoxKind = "keeper"    // the only one that writes .git; no network
	BoxScratch   BoxKind = "scratch"   // hostile repositories and archives are opened here
)

// BaseInBox is where a verify box sees, read-only, the commit that the task it
// checks started from.
const BaseInBox = "/base"

// BoxKinds lists every kind.
var BoxKinds = []BoxKind{BoxDirector, BoxAssociate, BoxTask, BoxVerify, BoxTerminal, BoxDesktop, BoxKeeper, BoxScratch}

// Payload is the data of an event.
type Payload interface{ Validate() error }

// TypeInfo describes one event type.
type TypeInfo struct {
	Type      string
	Doc       string
	By        []ActorKind // which kinds of actors may append it
	Needs     Capability  // the capability that they need
	Boxes     []BoxKind   // boxes that may post it over their tether; empty: only the host appends it
	Action    bool        // whether those who have the capability may post it directly; otherwise the host appends it once it is done
	Projected bool        // false: explicitly not projected beyond the events table
	New       func() Payload
}

// The kinds of actors that most events are by.
var (
	host          = []ActorKind{KindSystem}
	clients       = []ActorKind{KindPerson, KindApp}
	clientsOrHost = []ActorKind{KindPerson, KindApp, KindSystem}
)

var registry = make(map[string]TypeInfo, 64)

func register[T any, P interface {
	*T
	Payload
}](info TypeInfo) {
	if _, dup := registry[info.Type]; dup {
		panic("contract: event type registered twice: " + info.Type)
	}
	if err := info.ruled(); err != nil {
		panic("contract: " + info.Type + ": " + err.Error())
	}
	info.New = func() Payload { return P(new(T)) }
	registry[info.Type] = info
}

// ruled reports what is missing in the rule about who may append the type.
func (info TypeInfo) ruled() error {
	if len(info.By) == 0 || info.Needs == "" {
		return errors.New("nothing says who may append it")
	}
	for _, kind := range info.By {
		if !kind.Can(info.Needs) {
			return fmt.Errorf("a %s may append it, and can't %s", kind, info.Needs)
		}
	}
	return nil
}

// SaidBy reports whether an actor of the kind may append the type.
func (info TypeInfo) SaidBy(kind ActorKind) bool { return slices.Contains(info.By, kind) }

// Lookup returns the description of an event type.
func Lookup(eventType string) (TypeInfo, bool) {
	info, ok := registry[eventType]
	return info, ok
}

// Types returns every event type, sorted by name.
func Types() []TypeInfo {
	out := make([]TypeInfo, 0, len(registry))
	for _, info := range registry {
		out = append(out, info)
	}
	sort.Slice(out, func(i, j int) bool { return out[i].Type < out[j].Type })
	return out
}

// DecodeData decodes and validates the data of an event of the given type. An unknown type
// is an error, for this build does not know what its data mean.
func DecodeData(eventType string, data []byte) (Payload, error) {
	info, ok := registry[eventType]
	if !ok {
		return nil, fieldErr("type", "is %q, which is not a known event type", Shorten(eventType, 64))
	}
	p := info.New()
	if len(data) == 0 {
		data = []byte("{}")
	}
	if err := DecodeStrict(data, MaxTurn, p); err != nil {
		return nil, within("data", err)
	}
	return p, within("data", p.Validate())
}

// EncodeData validates p and encodes it as the data of an event.
func EncodeData(eventType string, p Payload) (json.RawMessage, error) {
	info, ok := registry[eventType]
	if !ok {
		return nil, fieldErr("type", "is %q, which is not a known event type", Shorten(eventType, 64))
	}
	v := reflect.ValueOf(p)
	if !v.IsValid() || v.Kind() == reflect.Pointer && v.IsNil() {
		return nil, fieldErr("data", "is missing; %s carries a %s", eventType, info.payload().Name())
	}
	if got := reflect.Indirect(v).Type(); got != info.payload() {
		return nil, fieldErr("data", "is a %s; %s carries a %s", got.Name(), eventType, info.payload().Name())
	}
	if err := p.Validate(); err != nil {
		return nil, within("data", err)
	}
	b, err := json.Marshal(p)
	if err != nil {
		return nil, fieldErr("data", "can't be encoded: %v", err)
	}
	if len(b) > MaxTurn {
		return nil, fieldErr("data", "is %d bytes encoded; at most %d are allowed", len(b), MaxTurn)
	}
	return b, nil
}

// payload is the struct type of an event's data.
func (info TypeInfo) payload() reflect.Type { return reflect.TypeOf(info.New()).Elem() }

// MayPost reports whether a box of the given kind may post the type.
func MayPost(kind BoxKind, eventType string) bool {
	info, ok := registry[eventType]
	return ok && slices.Contains(info.Boxes, kind)
}
