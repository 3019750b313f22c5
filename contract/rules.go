package contract

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode"
)

// Rule is what a field's v tag demands of its value, beyond its Go type. The
// published JSON Schemas are generated from the same rules, so that what this
// package refuses and what the schemas refuse agree.
//
// A tag is a list of words: required (not empty), max=N (bytes of text, or the
// largest number), min=N, items=N (entries of a list or map), nonempty (a list
// with an entry), and at most one of id, commit, path, time (forms of text; an
// empty text passes unless required), line (no control characters, not blank)
// and raw (text that may hold NUL). What follows a semicolon is the rule for a
// list's entries.
type Rule struct {
	Required bool
	NonEmpty bool
	Form     string // "", id, commit, path, time, line or raw
	Min, Max *float64
	Items    int
	Elem     *Rule
}

// FieldRule is one field of a struct with its rule.
type FieldRule struct {
	Name  string // as in JSON
	Index int
	Omit  bool // omitempty or omitzero
	Type  reflect.Type
	Rule  Rule
	// Needed says that a message without the field is refused: its zero value
	// does not pass.
	Needed bool
}

// crossChecker is implemented by structs with rules about several fields. It is called once
// every field has passed by itself.
type crossChecker interface{ crossCheck() error }

var (
	enumValues = make(map[reflect.Type][]string, 32)
	plans      sync.Map // reflect.Type → []FieldRule
	rawType    = reflect.TypeFor[json.RawMessage]()
	timeType   = reflect.TypeFor[time.Time]()
)

// enum declares the only values a string type may have.
func enum[T ~string](values ...T) bool {
	names := make([]string, len(values))
	for i, v := range values {
		names[i] = string(v)
	}
	enumValues[reflect.TypeFor[T]()] = names
	return true
}

// EnumValues returns the values of a string type that has a closed set, nil
// for any other type.
func EnumValues(t reflect.Type) []string { return enumValues[t] }

// Fields returns the rules of a struct's fields, in order.
func Fields(t reflect.Type) []FieldRule {
	if plan, ok := plans.Load(t); ok {
		return plan.([]FieldRule)
	}
	var plan []FieldRule
	for i := range t.NumField() {
		f := t.Field(i)
		if f.Tag.Get("json") == "-" {
			continue // it never comes from outside
		}
		name, opts, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name == "" || !f.IsExported() {
			panic("contract: " + t.Name() + "." + f.Name + " has no JSON name")
		}
		fr := FieldRule{Name: name, Index: i, Omit: opts != "", Type: f.Type, Rule: parseRule(f.Tag.Get("v"))}
		fr.Needed = checkValue(name, reflect.Zero(f.Type), &fr.Rule) != nil
		plan = append(plan, fr)
	}
	plans.Store(t, plan)
	return plan
}

func parseRule(tag string) Rule {
	var r Rule
	own, elem, nested := strings.Cut(tag, ";")
	if nested {
		e := parseRule(elem)
		r.Elem = &e
	}
	number := func(s string) *float64 {
		n, err := strconv.ParseFloat(s, 64)
		if err != nil {
			panic("contract: rule " + tag + ": " + err.Error())
		}
		return &n
	}
	for word := range strings.SplitSeq(own, ",") {
		key, value, _ := strings.Cut(word, "=")
		switch key {
		case "":
		case "required":
			r.Required = true
		case "nonempty":
			r.NonEmpty = true
		case "min":
			r.Min = number(value)
		case "max":
			r.Max = number(value)
		case "items":
			r.Items = int(*number(value))
		case "id", "commit", "path", "time", "line", "raw":
			r.Form = key
		default:
			panic("contract: unknown rule " + word)
		}
	}
	return r
}

// check applies the rules of every field of a struct, and of what it holds,
// and then its cross-field rules.
func check(v any) error {
	rv := reflect.ValueOf(v)
	for rv.Kind() == reflect.Pointer {
		rv = rv.Elem()
	}
	return checkStruct(rv)
}

func checkStruct(v reflect.Value) error {
	if err := checkFields(v); err != nil {
		return err
	}
	if c, ok := v.Interface().(crossChecker); ok {
		return c.crossCheck()
	}
	return nil
}

// checkFields applies the rules of every field.
func checkFields(v reflect.Value) error {
	fields := Fields(v.Type())
	for i := range fields {
		f := &fields[i]
		if err := checkValue(f.Name, v.Field(f.Index), &f.Rule); err != nil {
			return err
		}
	}
	return nil
}

var noRule Rule

func checkValue(field string, v reflect.Value, r *Rule) error {
	t := v.Type()
	switch t.Kind() {
	case reflect.String:
		return checkString(field, v.String(), t, r)
	case reflect.Int, reflect.Int64:
		return checkNumber(field, float64(v.Int()), r)
	case reflect.Uint64:
		return checkNumber(field, float64(v.Uint()), r)
	case reflect.Float64:
		return checkNumber(field, v.Float(), r)
	case reflect.Bool:
		return nil
	case reflect.Pointer:
		if v.IsNil() {
			return nil
		}
		return checkValue(field, v.Elem(), r)
	case reflect.Struct:
		if t == timeType {
			if v.IsZero() {
				return fieldErr(field, "is required")
			}
			return nil
		}
		return within(field, checkStruct(v))
	case reflect.Slice:
		return checkSlice(field, v, t, r)
	case reflect.Map:
		if r.Items > 0 && v.Len() > r.Items {
			return fieldErr(field, "has %d entries; at most %d are allowed", v.Len(), r.Items)
		}
		return nil // the rules for the entries are cross-field rules
	}
	panic("contract: no rule for " + t.String())
}

func checkSlice(field string, v reflect.Value, t reflect.Type, r *Rule) error {
	if t == rawType {
		if r.Max != nil && v.Len() > int(*r.Max) {
			return fieldErr(field, "is %d bytes long; at most %d are allowed", v.Len(), int(*r.Max))
		}
		return nil
	}
	n := v.Len()
	if n == 0 {
		if r.NonEmpty {
			return fieldErr(field, "is empty")
		}
		return nil
	}
	if r.Items > 0 && n > r.Items {
		return fieldErr(field, "has %d entries; at most %d are allowed", n, r.Items)
	}
	elem := r.Elem
	if elem == nil {
		elem = &noRule
	}
	for i := range n {
		// The field's name is only put together when an error needs it.
		if err := checkValue("", v.Index(i), elem); err != nil {
			return checkValue(field+"["+strconv.Itoa(i)+"]", v.Index(i), elem)
		}
	}
	return nil
}

func checkString(field, s string, t reflect.Type, r *Rule) error {
	if values, ok := enumValues[t]; ok {
		if s == "" && !r.Required {
			return nil
		}
		return oneOf(field, s, values...)
	}
	switch t {
	case reflect.TypeFor[BlobRef]():
		if s == "" && !r.Required {
			return nil
		}
		return renamed(field, BlobRef(s).Validate())
	case reflect.TypeFor[Link]():
		if s == "" && !r.Required {
			return nil
		}
		return renamed(field, Link(s).Validate())
	case reflect.TypeFor[ActorName]():
		if s == "" && !r.Required {
			return nil
		}
		return renamed(field, ActorName(s).Validate())
	case reflect.TypeFor[CID]():
		return renamed(field, CID(s).Validate())
	}
	if s == "" {
		if r.Required {
			return fieldErr(field, "is required")
		}
		return nil
	}
	switch r.Form {
	case "line":
		if strings.TrimSpace(s) == "" || strings.ContainsFunc(s, unicode.IsControl) {
			return fieldErr(field, "is blank or has control characters")
		}
	case "id":
		return ValidID(field, s)
	case "commit":
		return validCommit(field, s, false)
	case "path":
		return ValidPath(field, s)
	case "time":
		// time.Parse alone accepts what RFC 3339 does not, such as one digit for the hour.
		if _, err := time.Parse(time.RFC3339, s); err != nil || len(s) > 40 || len(s) < 20 || s[10] != 'T' || s[13] != ':' {
			return fieldErr(field, "is %q; it must be an RFC 3339 time", Shorten(s, 40))
		}
		return nil
	}
	max := maxText
	if r.Max != nil {
		max = int(*r.Max)
	}
	if r.Form == "raw" {
		if len(s) > max {
			return fieldErr(field, "is %d bytes long; at most %d are allowed", len(s), max)
		}
		return nil
	}
	return text(field, s, max, r.Required)
}

// maxText bounds text whose rule gives no bound of its own.
const maxText = 1 << 20

// renamed gives a FieldError another field.
func renamed(field string, err error) error {
	if err == nil { // nearly always, and looking through the error would allocate
		return nil
	}
	if fe := AsFieldError(err); fe != nil {
		return &FieldError{Field: field, Reason: fe.Reason}
	}
	return err
}

func checkNumber(field string, n float64, r *Rule) error {
	switch {
	case n != n:
		return fieldErr(field, "is not a number")
	case r.Min != nil && n < *r.Min:
		return fieldErr(field, "is %s; it must be at least %s", number(n), number(*r.Min))
	case r.Max != nil && n > *r.Max:
		return fieldErr(field, "is %s; it may be at most %s", number(n), number(*r.Max))
	}
	return nil
}

func number(n float64) string { return strconv.FormatFloat(n, 'f', -1, 64) }

// exactlyOne says which of several fields must be the only one set.
func exactlyOne(names string, set ...bool) error {
	n := 0
	for _, s := range set {
		if s {
			n++
		}
	}
	if n != 1 {
		return fmt.Errorf("must have exactly one of %s", names)
	}
	return nil
}
