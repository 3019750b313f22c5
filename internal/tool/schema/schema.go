// Package schema checks JSON values against the small part of JSON Schema that
// tool descriptions use: type, properties, required, additionalProperties,
// items, enum, minimum, maximum, minLength, maxLength, minItems, maxItems.
//
// A keyword that it does not know is an error when the schema is compiled, so that no
// constraint is silently ignored.
package schema

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"sort"
	"strings"
	"unicode/utf8"

	"choir.dev/choiros/contract"
)

// Schema is a compiled schema; it is safe for concurrent use.
type Schema struct{ root node }

type node struct {
	Type        string           `json:"type"`
	Description string           `json:"description"`
	Properties  map[string]*node `json:"properties"`
	Required    []string         `json:"required"`
	Additional  *bool            `json:"additionalProperties"`
	Items       *node            `json:"items"`
	Enum        []string         `json:"enum"`
	Minimum     *float64         `json:"minimum"`
	Maximum     *float64         `json:"maximum"`
	MinLength   *int             `json:"minLength"`
	MaxLength   *int             `json:"maxLength"`
	MinItems    *int             `json:"minItems"`
	MaxItems    *int             `json:"maxItems"`
}

var types = []string{"object", "array", "string", "integer", "number", "boolean"}

// Compile reads a schema. It refuses keywords and types it can't enforce.
func Compile(raw json.RawMessage) (*Schema, error) {
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.DisallowUnknownFields()
	var s Schema
	if err := dec.Decode(&s.root); err != nil {
		return nil, fmt.Errorf("schema: %w", err)
	}
	return &s, s.root.check("schema")
}

// Type is the JSON type of the values that the schema describes.
func (s *Schema) Type() string { return s.root.Type }

func (n *node) check(at string) error {
	if !slices.Contains(types, n.Type) {
		return fmt.Errorf("%s: type %q is not one of %s", at, n.Type, strings.Join(types, ", "))
	}
	if n.Type == "array" && n.Items == nil {
		return fmt.Errorf("%s: an array needs items", at)
	}
	for _, r := range n.Required {
		if n.Properties[r] == nil {
			return fmt.Errorf("%s: required %q is not a property", at, r)
		}
	}
	for name, p := range n.Properties {
		if p == nil {
			return fmt.Errorf("%s.%s: is null, which is no schema", at, name)
		}
		if err := p.check(at + "." + name); err != nil {
			return err
		}
	}
	if n.Items != nil {
		return n.Items.check(at + "[]")
	}
	return nil
}

// Validate checks one JSON value and names the field that is wrong.
func (s *Schema) Validate(raw json.RawMessage) error {
	if !utf8.Valid(raw) {
		return errors.New("arguments are not valid UTF-8")
	}
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	var v any
	if err := dec.Decode(&v); err != nil {
		return fmt.Errorf("arguments are not valid JSON: %w", err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return errors.New("arguments have bytes after the JSON value")
	}
	return s.root.validate("", v)
}

func (n *node) validate(at string, v any) error {
	name := at
	if name == "" {
		name = "arguments"
	}
	switch v := v.(type) {
	case map[string]any:
		if n.Type != "object" {
			return wrongType(name, "an object", n.Type)
		}
		return n.validateObject(at, v)
	case []any:
		if n.Type != "array" {
			return wrongType(name, "an array", n.Type)
		}
		if n.MinItems != nil && len(v) < *n.MinItems {
			return fmt.Errorf("%s: has %d entries; at least %d are needed", name, len(v), *n.MinItems)
		}
		if n.MaxItems != nil && len(v) > *n.MaxItems {
			return fmt.Errorf("%s: has %d entries; at most %d are allowed", name, len(v), *n.MaxItems)
		}
		for i, it := range v {
			if err := n.Items.validate(fmt.Sprintf("%s[%d]", at, i), it); err != nil {
				return err
			}
		}
	case string:
		if n.Type != "string" {
			return wrongType(name, "a string", n.Type)
		}
		return n.validateString(name, v)
	case json.Number:
		return n.validateNumber(name, v)
	case bool:
		if n.Type != "boolean" {
			return wrongType(name, "a boolean", n.Type)
		}
	case nil:
		return wrongType(name, "null", n.Type)
	}
	return nil
}

func (n *node) validateObject(at string, v map[string]any) error {
	join := func(k string) string {
		if at == "" {
			return k
		}
		return at + "." + k
	}
	for _, r := range n.Required {
		if _, ok := v[r]; !ok {
			return fmt.Errorf("%s: is required", join(r))
		}
	}
	keys := make([]string, 0, len(v))
	for k := range v {
		keys = append(keys, k)
	}
	sort.Strings(keys)
	for _, k := range keys {
		p := n.Properties[k]
		if p == nil {
			if n.Additional != nil && !*n.Additional {
				return fmt.Errorf("%s: is not a known field", join(contract.Shorten(k, 60)))
			}
			continue
		}
		if err := p.validate(join(k), v[k]); err != nil {
			return err
		}
	}
	return nil
}

func (n *node) validateString(name, v string) error {
	switch {
	case n.MinLength != nil && len(v) < *n.MinLength:
		return fmt.Errorf("%s: is %d bytes long; at least %d are needed", name, len(v), *n.MinLength)
	case n.MaxLength != nil && len(v) > *n.MaxLength:
		return fmt.Errorf("%s: is %d bytes long; at most %d are allowed", name, len(v), *n.MaxLength)
	case len(n.Enum) > 0 && !slices.Contains(n.Enum, v):
		return fmt.Errorf("%s: is %q; allowed: %s", name, contract.Shorten(v, 60), strings.Join(n.Enum, ", "))
	}
	return nil
}

func (n *node) validateNumber(name string, v json.Number) error {
	if n.Type != "integer" && n.Type != "number" {
		return wrongType(name, "a number", n.Type)
	}
	f, err := v.Float64()
	if err != nil || math.IsInf(f, 0) {
		return fmt.Errorf("%s: %s is out of range", name, contract.Shorten(v.String(), 60))
	}
	if n.Type == "integer" {
		if _, err := v.Int64(); err != nil {
			return fmt.Errorf("%s: %s is not a whole number", name, contract.Shorten(v.String(), 60))
		}
	}
	switch {
	case n.Minimum != nil && f < *n.Minimum:
		return fmt.Errorf("%s: is %s; it must be at least %v", name, v, *n.Minimum)
	case n.Maximum != nil && f > *n.Maximum:
		return fmt.Errorf("%s: is %s; it must be at most %v", name, v, *n.Maximum)
	}
	return nil
}

func wrongType(name, got, want string) error {
	return fmt.Errorf("%s: is %s; it must be of type %s", name, got, want)
}
