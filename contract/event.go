package contract

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"regexp"
	"strings"
	"sync"
	"time"
	"unicode/utf8"
)

// Limits of the envelope, in bytes.
const (
	MaxInlineData = 64 << 10  // data beyond this travels as a blob named by dataref
	MaxEvent      = 128 << 10 // a whole encoded event
	// MaxSequence bounds sequence and epoch: a CloudEvents Integer is 32 bits, signed.
	MaxSequence = 1<<31 - 1
)

// sourceUser is in the sources of events from before actors existed: for people, and for
// the desktop's code acting for them, which can't be told apart any more.
const sourceUser = "user"

// Source returns the CloudEvents source of what actors of a kind do in a computer.
func Source(cid CID, kind ActorKind) string { return "/computers/" + string(cid) + "/" + string(kind) }

// ParseSource splits a source into computer and kind; what came from a user before actors
// existed counts as a person's.
func ParseSource(s string) (CID, ActorKind, error) {
	cid, kind, err := splitSource(s)
	if kind == sourceUser {
		kind = string(KindPerson)
	}
	return cid, ActorKind(kind), err
}

func splitSource(s string) (CID, string, error) {
	rest, ok := strings.CutPrefix(s, "/computers/")
	if !ok {
		return "", "", fieldErr("source", "is %q; it must start with /computers/", Shorten(s, 60))
	}
	id, kind, ok := strings.Cut(rest, "/")
	cid := CID(id)
	if !ok || cid.Validate() != nil || !ActorKind(kind).Valid() && kind != sourceUser {
		return "", "", fieldErr("source", "is %q; it must be /computers/{computer}/ and a kind of actor", Shorten(s, 60))
	}
	return cid, kind, nil
}

// Origin is the scope within which ids are unique: events with one origin and one id are
// one event. It is the source, except that people, apps and programs share one, under the
// name from before they were told apart. So an intention that is sent again is recognised
// whichever way it comes, even after an upgrade.
func Origin(source string) string {
	cid, kind, err := splitSource(source)
	if err != nil {
		return source
	}
	if !ActorKind(kind).Client() {
		return source
	}
	return "/computers/" + string(cid) + "/" + sourceUser
}

// OriginOfClients is the origin of events by people, apps and programs.
func OriginOfClients(cid CID) string { return "/computers/" + string(cid) + "/" + sourceUser }

// Event is one CloudEvents 1.0 event in its JSON form, the unit of a
// computer's log. Sequence is dense per computer: 1, 2, 3, …
type Event struct {
	SpecVersion     string          `json:"specversion" v:"required,max=3"`
	ID              string          `json:"id" v:"required,id"`
	Source          string          `json:"source" v:"required,max=64"`
	Type            string          `json:"type" v:"required,max=64"`
	Subject         string          `json:"subject,omitempty" v:"line,max=1024"`
	Time            time.Time       `json:"time"`
	DataContentType string          `json:"datacontenttype,omitempty" v:"max=60"`
	Data            json.RawMessage `json:"data,omitempty" v:"max=65536"`
	DataRef         BlobRef         `json:"dataref,omitempty"` // set instead of Data when the data exceed MaxInlineData

	Sequence    uint64    `json:"sequence" v:"min=1,max=2147483647"`
	Epoch       uint64    `json:"epoch" v:"min=1,max=2147483647"` // ownership generation of the log
	Prev        Link      `json:"prev,omitempty"`                 // hash of the event before it as stored; empty in events from before events were chained
	Computer    CID       `json:"computer"`
	Actor       ActorName `json:"actor,omitempty"`                 // who acted; empty in events from before actors existed
	User        string    `json:"user,omitempty" v:"line,max=128"` // the account on whose behalf
	Run         string    `json:"run,omitempty" v:"id"`
	Task        string    `json:"task,omitempty" v:"id"`
	Causation   string    `json:"causation,omitempty" v:"id"`             // id of the event that caused this one
	Correlation string    `json:"correlation,omitempty" v:"id"`           // id shared by all that follows from one intention
	Traceparent string    `json:"traceparent,omitempty" v:"line,max=128"` // W3C trace context
}

// By returns who acted, as far as the event says. In events from before actors existed the
// source decides: an event from a user is a person's, one from the Director or an Associate
// is that of the event's run or task, and the rest are the host's.
func (e Event) By() Actor {
	if e.Actor != "" {
		a, err := e.Actor.Actor(e.User)
		if err != nil {
			return Actor{}
		}
		return a
	}
	_, kind, err := ParseSource(e.Source)
	if err != nil {
		return Actor{}
	}
	switch kind {
	case KindPerson:
		return Person(e.User)
	case KindDirector:
		return Actor{Kind: kind, ID: e.Run, On: e.User}
	case KindAssociate:
		return Actor{Kind: kind, ID: e.Task, On: e.User}
	}
	return Actor{Kind: kind, On: e.User}
}

// Kind returns the kind of actor in the event's source, or "" when it has none.
func (e Event) Kind() ActorKind {
	_, kind, err := ParseSource(e.Source)
	if err != nil {
		return ""
	}
	return kind
}

var typePattern = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[a-z][a-z0-9_]*(\.[a-z][a-z0-9_]*){1,3}$`) })

// Validate checks the envelope; it does not look into the data (see
// DecodeData).
func (e Event) Validate() error { return check(e) }

// ValidateEnvelope is Validate for an event whose data come from EncodeData: it does not
// check again that they are JSON in UTF-8.
func (e *Event) ValidateEnvelope() error {
	if err := checkFields(reflect.ValueOf(e).Elem()); err != nil {
		return err
	}
	return e.crossEnvelope()
}

func (e Event) crossCheck() error {
	if err := e.crossEnvelope(); err != nil {
		return err
	}
	if len(e.Data) > 0 && (!utf8.Valid(e.Data) || !json.Valid(e.Data)) {
		return fieldErr("data", "is not valid JSON in UTF-8")
	}
	return nil
}

func (e *Event) crossEnvelope() error {
	cid, kind, err := splitSource(e.Source)
	if err != nil {
		return err
	}
	if err := e.crossActor(kind); err != nil {
		return err
	}
	switch {
	case e.SpecVersion != "1.0":
		return fieldErr("specversion", "is %q; it must be 1.0", Shorten(e.SpecVersion, 20))
	case e.Computer != cid:
		return fieldErr("computer", "is %q but the source names %q", Shorten(string(e.Computer), 40), string(cid))
	case registry[e.Type].New == nil && !typePattern().MatchString(e.Type):
		return fieldErr("type", "is %q; a type is lower-case words joined by dots, such as prompt.submitted", Shorten(e.Type, 64))
	case e.Time.Year() < 1 || e.Time.Year() > 9999:
		return fieldErr("time", "is in the year %d; it must be from 1 to 9999", e.Time.Year())
	case len(e.Data) > 0 && e.DataRef != "":
		return fieldErr("dataref", "and data exclude each other")
	case (len(e.Data) > 0 || e.DataRef != "") && e.DataContentType != "application/json":
		return fieldErr("datacontenttype", "is %q; it must be application/json", Shorten(e.DataContentType, 60))
	}
	return nil
}

// crossActor checks that the actor is of the source's kind, and that a person acts for
// nobody else. Events from before actors existed have none.
func (e *Event) crossActor(kind string) error {
	old := kind == sourceUser || kind == string(KindDirector) || kind == string(KindAssociate) || kind == string(KindSystem)
	switch {
	case e.Actor == "" && !old:
		return fieldErr("actor", "is required with the source %q", Shorten(e.Source, 60))
	case e.Actor != "" && string(e.Actor.Kind()) != kind:
		return fieldErr("actor", "is %q but the source names %q", Shorten(string(e.Actor), 60), kind)
	case kind == string(KindPerson) && strings.TrimPrefix(string(e.Actor), kind) != prefixed(":", e.User):
		return fieldErr("actor", "is %q but the user is %q", Shorten(string(e.Actor), 60), Shorten(e.User, 60))
	}
	return nil
}

// prefixed puts a prefix before s, unless s is empty.
func prefixed(prefix, s string) string {
	if s == "" {
		return ""
	}
	return prefix + s
}

// MarshalEvent validates e and encodes it.
func MarshalEvent(e Event) ([]byte, error) {
	if err := e.Validate(); err != nil {
		return nil, err
	}
	b, err := json.Marshal(e)
	if err != nil {
		return nil, fmt.Errorf("encode event: %w", err)
	}
	if len(b) > MaxEvent {
		return nil, fieldErr("event", "is %d bytes encoded; at most %d are allowed", len(b), MaxEvent)
	}
	return b, nil
}

// UnmarshalEvent decodes and validates one event. Unknown attributes are
// refused: an attribute this version does not know can't be kept faithfully.
func UnmarshalEvent(b []byte) (Event, error) {
	var e Event
	if err := DecodeStrict(b, MaxEvent, &e); err != nil {
		return Event{}, within("event", err)
	}
	return e, e.Validate()
}

// DecodeStrict decodes exactly one JSON value of at most max bytes into v and
// refuses unknown fields, keys in another case or given twice, null, invalid
// UTF-8 and trailing bytes. v must point to a struct whose fields all have JSON
// names.
func DecodeStrict(b []byte, max int, v any) error {
	if len(b) > max {
		return fmt.Errorf("is %d bytes long; at most %d are allowed", len(b), max)
	}
	if !utf8.Valid(b) {
		return errors.New("is not valid UTF-8")
	}
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.DisallowUnknownFields()
	if err := dec.Decode(v); err != nil {
		return decodeReason(err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return errors.New("has bytes after its end")
	}
	return checkShape(b, reflect.TypeOf(v))
}

// kindOf is what of JSON a field of a type takes.
func kindOf(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Bool:
		return "boolean"
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64, reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return "whole number"
	case reflect.Float32, reflect.Float64:
		return "number"
	case reflect.Slice, reflect.Array:
		return "array"
	case reflect.Struct, reflect.Map:
		return "object"
	}
	return "string"
}

func article(noun string) string {
	if noun != "" && strings.ContainsRune("aeio", rune(noun[0])) {
		return "an " + noun
	}
	return "a " + noun
}

// decodeReason turns encoding/json's errors into ones that name the field.
func decodeReason(err error) error {
	var te *json.UnmarshalTypeError
	if errors.As(err, &te) && te.Field != "" {
		return &FieldError{Field: te.Field, Reason: fmt.Sprintf("is %s; it must be %s", article(strings.Replace(te.Value, "bool", "boolean", 1)), article(kindOf(te.Type)))}
	}
	var pe *time.ParseError
	if errors.As(err, &pe) { // the envelope's time is the only one that is decoded
		return &FieldError{Field: "time", Reason: "is not an RFC 3339 time"}
	}
	if name, ok := strings.CutPrefix(err.Error(), "json: unknown field "); ok {
		return &FieldError{Field: strings.Trim(name, `"`), Reason: "is not a known field"}
	}
	return fmt.Errorf("is not the expected JSON: %w", err)
}
