package rpc

import (
	"context"
	"fmt"
	"reflect"
	"sync"
	"time"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/fault"
)

// Callers are the kinds of callers that may call a method, as a set of bits.
type Callers uint8

// Who may call. A program holds a token; the machine's owner has a token of its own in a
// file; the console and a desktop are pages with a session of their own.
const (
	Program Callers = 1 << iota
	Owner
	Console
	Desktop

	// API is whoever may use HTTP. People is who may decide what reaches beyond a computer:
	// a person on the console, or the owner's own program.
	API    = Program | Owner | Console
	People = Owner | Console
)

// Effect is what a call does to the log, which decides what it counts against.
type Effect uint8

// The effects.
const (
	Reads   Effect = iota // nothing
	Stores                // a client has something stored
	Governs               // a person stops, decides or takes back, which no page's flood of requests may prevent over HTTP
	Stops                 // something is changed, but nothing is stored in the caller's name
)

// Kind is how a method's request and answer travel.
type Kind uint8

// The kinds. All but Call are bound by hand, since over HTTP alone they are a stream of
// bytes in one or both directions; the declarations hold everything else.
const (
	Call     Kind = iota
	Stream        // the answer goes on
	Upload        // the request is bytes
	Download      // the answer is bytes
	Duplex        // both
)

// Needs says what a method is asked of.
type Needs uint8

// What is needed.
const (
	Awake   Needs = iota // a computer that is awake
	History              // also one that does not wake, if its history can be opened
	Known                // any computer of the caller's, whatever its state
	Plane                // no computer: the control plane itself
)

// How long a call may take.
const (
	Quick = time.Minute
	Long  = 15 * time.Minute // what copies, builds, compares or replays
)

// Bounds of messages, in bytes. A method's own bounds are tags of its types.
const (
	MaxBody       = 1 << 20   // a request over HTTP
	MaxBusRequest = 256 << 10 // one on the bus
	MaxBusAnswer  = 700 << 10 // below NATS' payload limit, with room for headers
	maxClient     = 64 << 20  // an answer that the client reads
)

// Route is where a method is over HTTP, below /api/computers/{computer}, or of
// the control plane's below /api. ID is what generated clients call it.
type Route struct{ Verb, Path, ID string }

// Where methods are.
const (
	root     = "/api"
	computer = root + "/computers/{computer}"
)

// Declared is all that is declared of a method except its types.
type Declared struct {
	// Name is its service and verb: its subject on the bus, and its name
	// everywhere in this program.
	Name    string
	Summary string
	Detail  string
	HTTP    Route // none: only on the bus
	Callers Callers
	// May is the capability that the caller must have, and Also a second one, for the few
	// methods that require two. Without May nobody may call.
	May, Also contract.Capability
	Effect    Effect
	Kind      Kind
	Needs     Needs
	Limit     time.Duration // 0: Quick
	// Noun is what the bus calls the entries of a list.
	Noun string
	// Host says that the control plane answers it, not the computer.
	Host bool
	// Tool is set for methods that models may be offered as tools.
	Tool *Tool
}

// Address is the method's whole path.
func (d Declared) Address() string {
	if d.Needs == Plane {
		return root + d.HTTP.Path
	}
	return computer + d.HTTP.Path
}

// Caller is who asks, and of which computer.
type Caller struct {
	Computer contract.CID
	Actor    contract.Actor
	// Session identifies whose streams the caller gets: the console session that a
	// browser's sessions depend on, or a token.
	Session string
	// Principal is who the caller is on the bus, "" elsewhere.
	Principal string
}

// At is the part of every request that names the computer. The transport fills it in: from
// the path over HTTP, from the subject on the bus.
type At struct {
	Computer string `path:"computer" maxLength:"16" doc:"id, or - when there is only one"`
}

// Named returns the computer's name in the request's path.
func (a At) Named() string { return a.Computer }

// NoComputer is embedded, in place of At, in requests of the control plane itself.
type NoComputer struct{}

// Named returns no computer.
func (NoComputer) Named() string { return "" }

// Asked is implemented by every request, by embedding At or NoComputer.
type Asked interface{ Named() string }

// None is the answer of a method that returns nothing but success.
type None struct{}

// List is a part of a list; More says that there is more to ask for.
type List[T any] struct {
	Items []T
	More  bool
}

// Listed makes a List of what a function returned.
func Listed[T any](items []T, more bool, err error) (List[T], error) {
	return List[T]{items, more}, err
}

// Done makes the answer of a function that returns only an error.
func Done(err error) (None, error) { return None{}, err }

// Method is a declaration with its types.
type Method[In Asked, Out any] struct {
	Declared
	mount  mount[In, Out]
	answer func(Declared, Out) ([]byte, error) // on the bus
	read   reader[Out]
	item   reflect.Type // of a list

	apart sync.Once // guards parts, which are made when they are first needed
	parts *flat
}

// Any is a method of any types.
type Any interface {
	About() Declared
	// Asks is the type of its request as it is on the bus, and Answers that of its answer
	// or, for a list, of an entry.
	Asks() reflect.Type
	Answers() (t reflect.Type, list bool)
	Mount(HTTPBinding)
	// Answer answers a request from the bus with a table.
	Answer(ctx context.Context, t Table, who Caller, data []byte) ([]byte, error)
	// Requested turns a request as one JSON object into one over HTTP.
	Requested(computer string, data []byte) (Request, error)
	bound(Table) bool
}

// About returns what is declared of the method.
func (m *Method[In, Out]) About() Declared { return m.Declared }

// Asks implements Any.
func (m *Method[In, Out]) Asks() reflect.Type { return m.flat().typ }

// Answers implements Any.
func (m *Method[In, Out]) Answers() (reflect.Type, bool) {
	if m.item != nil {
		return m.item, true
	}
	return reflect.TypeFor[Out](), false
}

// flat is the flat form of the method's request.
func (m *Method[In, Out]) flat() *flat {
	m.apart.Do(func() { m.parts = flatten(reflect.TypeFor[In]()) })
	return m.parts
}

var all = make([]Any, 0, 128)

// All lists every method, in the order of their declaration. The capabilities that each
// requires are added to its description.
func All() []Any {
	for _, m := range all {
		if d := m.About(); !d.says() {
			panic("rpc: nothing says what " + d.Name + " takes of who asks it")
		}
	}
	return all
}

func add[In Asked, Out any](m *Method[In, Out]) *Method[In, Out] {
	if m.Limit == 0 {
		m.Limit = Quick
	}
	all = append(all, m)
	return m
}

// single declares a method that answers with one value.
func single[In Asked, Out any](d Declared) *Method[In, Out] {
	return add(&Method[In, Out]{Declared: d, mount: mountOne[In, Out], answer: encode[Out], read: readOne[Out]})
}

// done declares a method that answers with nothing.
func done[In Asked](d Declared) *Method[In, None] {
	return add(&Method[In, None]{Declared: d, mount: mountNone[In], answer: encode[None], read: readNone})
}

// list declares a method that answers with a part of a list.
func list[In Asked, T any](d Declared) *Method[In, List[T]] {
	return add(&Method[In, List[T]]{Declared: d, mount: mountList[In, T], answer: encodeList[T], read: readList[T], item: reflect.TypeFor[T]()})
}

// bytes declares a method that is bound by hand.
func bytes[In Asked](d Declared) *Method[In, None] {
	if d.Kind == Call {
		panic("rpc: " + d.Name + " has no kind")
	}
	return add(&Method[In, None]{Declared: d})
}

// Table holds the functions that answer methods, by the methods' names.
type Table map[string]any

// Bind makes f answer a method.
func Bind[In Asked, Out any](t Table, m *Method[In, Out], f func(context.Context, Caller, In) (Out, error)) {
	if _, twice := t[m.Name]; twice {
		panic("rpc: " + m.Name + " is bound twice")
	}
	t[m.Name] = f
}

func (m *Method[In, Out]) bound(t Table) bool {
	_, ok := t[m.Name].(func(context.Context, Caller, In) (Out, error))
	return ok
}

// Ask calls the function in a table that answers the method.
func (m *Method[In, Out]) Ask(ctx context.Context, t Table, who Caller, in In) (Out, error) {
	f, ok := t[m.Name].(func(context.Context, Caller, In) (Out, error))
	if !ok {
		var none Out
		return none, fault.New("rpc."+m.Name, fault.Missing, "", fmt.Errorf("nothing answers %s here", m.Name))
	}
	return f(ctx, who, in)
}

// Unbound names those of the selected methods that a table does not answer.
func (t Table) Unbound(asked func(Declared) bool) []string {
	var out []string
	for _, m := range all {
		if d := m.About(); d.Kind == Call && asked(d) && !m.bound(t) {
			out = append(out, d.Name)
		}
	}
	return out
}

// validate checks a request's form, if it has rules beyond its tags.
func validate(in any) error {
	if v, ok := in.(interface{ Validate() error }); ok {
		return v.Validate()
	}
	return nil
}
