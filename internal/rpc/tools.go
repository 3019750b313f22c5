package rpc

import (
	"encoding/json"
	"net/http"
	"reflect"
	"strings"

	"choir.dev/choiros/contract"
)

// Tool is what a model is told of a method that programs may offer it, as MCP servers do.
// That a call only reads follows from the method's effect.
type Tool struct {
	Description string // for the model
	// Destructive says that a call may take away what is there; it can be undone all the same.
	Destructive bool
	// Repeatable says that the same call again changes nothing more.
	Repeatable bool
}

// ToolName is the method's name where tools have names of one word.
func (d Declared) ToolName() string { return strings.ReplaceAll(d.Name, ".", "_") }

// Requested turns a request as one JSON object, as it is on the bus, into one over HTTP. The
// object is read strictly.
func (m *Method[In, Out]) Requested(computer string, data []byte) (Request, error) {
	var in In
	if len(data) == 0 {
		data = []byte("{}")
	}
	if err := m.flat().decode(data, &in); err != nil {
		return Request{}, err
	}
	if err := validate(in); err != nil {
		return Request{}, err
	}
	return m.Request(computer, in)
}

// Schema is the JSON Schema of a method's request as one JSON object.
func Schema(m Any) (json.RawMessage, error) { return json.Marshal(schemaOf(m.Asks(), "")) }

type object = map[string]any

// schemaOf describes a type by its fields' tags, which say over HTTP the same.
func schemaOf(t reflect.Type, tag reflect.StructTag) object {
	out := object{}
	switch t.Kind() {
	case reflect.Pointer:
		return schemaOf(t.Elem(), tag)
	case reflect.String:
		out["type"] = "string"
	case reflect.Bool:
		out["type"] = "boolean"
	case reflect.Int, reflect.Int64, reflect.Uint64:
		out["type"] = "integer"
	case reflect.Float64:
		out["type"] = "number"
	case reflect.Slice:
		if t == reflect.TypeFor[json.RawMessage]() {
			break // any value
		}
		out["type"], out["items"] = "array", schemaOf(t.Elem(), "")
	case reflect.Map:
		out["type"] = "object"
	case reflect.Struct:
		return ofFields(t)
	}
	if doc := tag.Get("doc"); doc != "" {
		out["description"] = doc
	}
	for _, key := range []string{"minLength", "maxLength", "minimum", "maximum", "minItems", "maxItems", "default"} {
		if text := tag.Get(key); text != "" && json.Valid([]byte(text)) {
			out[key] = json.RawMessage(text)
		}
	}
	if p := tag.Get("pattern"); p != "" {
		out["pattern"] = p
	}
	if words := tag.Get("enum"); words != "" {
		out["enum"] = strings.Split(words, ",")
	}
	return out
}

func ofFields(t reflect.Type) object {
	properties, required := object{}, []string{}
	for i := range t.NumField() {
		sf := t.Field(i)
		name, options, _ := strings.Cut(sf.Tag.Get("json"), ",")
		if name == "-" || name == "" || !sf.IsExported() {
			continue
		}
		properties[name] = schemaOf(sf.Type, sf.Tag)
		if !strings.Contains(options, "omit") || sf.Tag.Get("required") == "true" {
			required = append(required, name)
		}
	}
	out := object{"type": "object", "properties": properties, "additionalProperties": false}
	if len(required) > 0 {
		out["required"] = required
	}
	return out
}

// Answered is a response to a call over HTTP as one JSON object: a list has its entries under
// the noun that the method declares, and nothing is an empty object.
func Answered(d Declared, header http.Header, body []byte) json.RawMessage {
	switch {
	case len(body) == 0:
		return json.RawMessage("{}")
	case d.Noun != "":
		more := "false"
		if header.Get("Choir-More") == "true" {
			more = "true"
		}
		return json.RawMessage(`{"` + d.Noun + `":` + string(body) + `,"more":` + more + `}`)
	}
	return body
}

// Offers reports whether a method is a tool for whoever can do some things.
func (d Declared) Offers(can func(contract.Capability) bool) bool {
	for _, c := range d.Takes() {
		if !can(c) {
			return false
		}
	}
	return d.Tool != nil
}
