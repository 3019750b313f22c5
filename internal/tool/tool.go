package tool

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/tool/schema"
)

// Executor says who carries out a tool's calls.
type Executor string

// Who carries out calls.
const (
	Box  Executor = "box"  // the guest of the box that holds the tree
	Host Executor = "host" // the host, outside of every box
	Loop Executor = "loop" // the loop that drives the model, without asking anybody
)

// Effect is something that a call may do. Every tool declares all that it may do, or None:
// a missing declaration would be taken for harmless.
type Effect string

// What a call may do.
const (
	None         Effect = "none"         // it reads nothing of the workspace and changes nothing
	Reads        Effect = "reads"        // it reads the workspace or the computer's history
	Writes       Effect = "writes"       // it changes the workspace or adds to the log
	Network      Effect = "network"      // it reaches the network, as far as its executor lets it
	Irreversible Effect = "irreversible" // going back to a checkpoint does not undo it
)

// Caller is who may make a call.
type Caller string

// Who may call.
const (
	Director Caller = "director" // the model that plans a run
	Agent    Caller = "agent"    // the model that carries out a task
	Step     Caller = "step"     // a task without a model, as one of its steps
	Check    Caller = "check"    // the host, to verify the result of a task
	Opening  Caller = "opening"  // the host, for what a loop is told before its first turn
)

// Untimed is the Time of a call that waits for tasks or for a person, which have bounds of
// their own.
const Untimed time.Duration = -1

// Limits bound each call.
type Limits struct {
	In   int           `json:"in"`   // bytes of its arguments
	Out  int           `json:"out"`  // bytes of the answer's text, and of its data
	Time time.Duration `json:"time"` // in which it has to end; or Untimed
}

// Tool declares a tool.
type Tool struct {
	Name        string `json:"name"`
	Description string `json:"description"` // for whoever calls it
	// Schema is the JSON Schema of the arguments, an object. See package schema
	// for the keywords that it may have.
	Schema   json.RawMessage `json:"schema"`
	Executor Executor        `json:"executor"`
	Effects  []Effect        `json:"effects"`
	Limits   Limits          `json:"limits"`
	Callers  []Caller        `json:"callers"`
	// Ends says that a successful call ends the loop. Such a tool is offered without being
	// asked for.
	Ends bool `json:"ends,omitempty"`
	// Own says that the tool is about nothing but the task that calls it. Such a tool is offered without
	// being asked for, too.
	Own bool `json:"own,omitempty"`
	// Granted says that a person approved calls of the tool in advance, though they can't be undone.
	Granted bool `json:"granted,omitempty"`
	// With is a tool without which this one is of no use, and that may do all that this one may:
	// who is granted that one is granted this one, too.
	With string `json:"with,omitempty"`
	// Addressed says that what each call reaches follows from the owner's configuration, or from what a person
	// said or allowed for that very call, so that a task needs no grant of network for it.
	Addressed bool `json:"addressed,omitempty"`
	// Asked says that a person is asked about each call, is shown all that leaves, and allows that one call: what it does can't
	// be undone, and so a task may have it.
	Asked bool `json:"asked,omitempty"`
	// Kinds are the kinds of task whose work the tool is a part of: they have it without listing it, and no other may list it.
	Kinds []contract.TaskKind `json:"kinds,omitempty"`
	// OneFile says that a call changes exactly the file that its argument path names, so that a task which may change one file may
	// make it.
	OneFile bool `json:"one_file,omitempty"`
}

// Spec is the tool as a model sees it, in every provider's wire format.
func (t Tool) Spec() contract.ToolSpec {
	return contract.ToolSpec{Name: t.Name, Description: t.Description, Schema: t.Schema}
}

// Has reports whether a call may have the effect.
func (t Tool) Has(e Effect) bool { return slices.Contains(t.Effects, e) }

// ReadOnly reports whether a call changes nothing anywhere, so that repeating it is
// harmless.
func (t Tool) ReadOnly() bool {
	return !t.Has(Writes) && !t.Has(Network) && !t.Has(Irreversible)
}

// For reports whether the caller may call the tool.
func (t Tool) For(c Caller) bool { return slices.Contains(t.Callers, c) }

// Bounds of a declaration. No call has larger arguments than a model's turn, no
// answer is larger than what a box may answer.
const (
	maxDescription = 4096
	maxIn          = contract.MaxTurn
	maxOut         = 4 << 20
	maxTime        = 25 * time.Hour
)

// named says whether s can be a tool's name. It uses no regular expression: compiling one
// that counts repetitions takes each guest 0.2 ms.
func named(s string) bool {
	return s != "" && len(s) <= 63 && 'a' <= s[0] && s[0] <= 'z' && strings.Trim(s, "abcdefghijklmnopqrstuvwxyz0123456789_") == ""
}

// validate returns what is missing or wrong in a declaration.
func (t Tool) validate() error {
	switch {
	case !named(t.Name):
		return fmt.Errorf("name %q: give 1 to 63 lower case letters, digits and _, a letter first", t.Name)
	case t.Description == "" || len(t.Description) > maxDescription:
		return fmt.Errorf("description: give 1 to %d bytes", maxDescription)
	case len(t.Schema) == 0:
		return errors.New("schema: is missing; a tool without arguments declares an object without properties")
	case !slices.Contains([]Executor{Box, Host, Loop}, t.Executor):
		return fmt.Errorf("executor %q: is none of box, host, loop", t.Executor)
	case t.Limits.In <= 0 || t.Limits.In > maxIn:
		return fmt.Errorf("limits.in: is %d; give 1 to %d bytes", t.Limits.In, maxIn)
	case t.Limits.Out <= 0 || t.Limits.Out > maxOut:
		return fmt.Errorf("limits.out: is %d; give 1 to %d bytes", t.Limits.Out, maxOut)
	case t.Limits.Time != Untimed && (t.Limits.Time <= 0 || t.Limits.Time > maxTime):
		return fmt.Errorf("limits.time: is %s; give more than 0 and at most %s, or Untimed", t.Limits.Time, maxTime)
	}
	if err := set("effects", t.Effects, None, Reads, Writes, Network, Irreversible); err != nil {
		return err
	}
	if t.Has(None) && len(t.Effects) > 1 {
		return errors.New("effects: none stands alone")
	}
	return set("callers", t.Callers, Director, Agent, Step, Check, Opening)
}

// set checks a non-empty list of distinct values.
func set[T ~string](field string, list []T, allowed ...T) error {
	if len(list) == 0 {
		return fmt.Errorf("%s: are missing; say which of %v it has", field, allowed)
	}
	for i, v := range list {
		if !slices.Contains(allowed, v) {
			return fmt.Errorf("%s: %q is none of %v", field, v, allowed)
		}
		if slices.Contains(list[:i], v) {
			return fmt.Errorf("%s: %q stands there twice", field, v)
		}
	}
	return nil
}

// Object is the schema of an object with the properties, which are JSON without
// the braces, and no others.
func Object(properties string, required ...string) json.RawMessage {
	rest := ""
	if len(required) > 0 {
		names, _ := json.Marshal(required) // strings always encode
		rest = `"required":` + string(names) + ","
	}
	return json.RawMessage(`{"type":"object","additionalProperties":false,` + rest + `"properties":{` + properties + `}}`)
}

// compile reads the schema of a declaration. Arguments are an object in every
// provider's wire format.
func compile(t Tool) (*schema.Schema, error) {
	s, err := schema.Compile(t.Schema)
	if err == nil && s.Type() != "object" {
		err = fmt.Errorf("schema: is of type %s; arguments are an object", s.Type())
	}
	return s, err
}
