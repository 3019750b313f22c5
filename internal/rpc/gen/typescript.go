package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"time"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/rpc"
	"choir.dev/choiros/internal/view"
)

const (
	contractPath = "choir.dev/choiros/contract"
	viewPath     = "choir.dev/choiros/internal/view"
)

// writer writes TypeScript, and collects the types that it refers to.
type writer struct {
	source
	b        bytes.Buffer
	imported []string // of the contract
	shown    []reflect.Type
	seen     map[reflect.Type]bool
}

func (w *writer) line(format string, args ...any) {
	fmt.Fprintf(&w.b, format, args...)
	w.b.WriteByte('\n')
}

func (w *writer) comment(indent, text string) {
	if text != "" {
		w.line("%s/** %s */", indent, strings.ReplaceAll(text, "*/", "* /"))
	}
}

// generate renders the methods that a desktop may call, with their requests and answers as
// they are on the bus.
func generate(root string) ([]byte, error) {
	s, err := readSource(filepath.Join(root, "internal/view"))
	if err != nil {
		return nil, err
	}
	services := &writer{source: s, seen: map[reflect.Type]bool{}}
	services.line("/** Every service: its request and its answer. */")
	services.line("export interface Services {")
	for _, m := range rpc.All() {
		d := m.About()
		if d.Callers&rpc.Desktop == 0 {
			continue
		}
		services.comment("  ", d.Summary)
		services.line("  '%s': [%s, %s]", d.Name, services.request(m.Asks()), services.answer(m, d))
	}
	services.line("}")
	services.line("")
	services.line("export type Service = keyof Services")

	services.typ(reflect.TypeFor[view.Session]()) // the page gets it before it can call anything

	types := &writer{source: s, seen: services.seen, shown: services.shown, imported: services.imported}
	for i := 0; i < len(types.shown); i++ { // the list grows during the loop
		types.declare(types.shown[i])
	}
	out := &writer{}
	out.line("// Generated from internal/rpc by go generate ./internal/rpc. Do not edit.")
	out.line("")
	slices.Sort(types.imported)
	if names := slices.Compact(types.imported); len(names) > 0 {
		out.line("import type { %s } from '../contract/contract'", strings.Join(names, ", "))
		out.line("")
	}
	return slices.Concat(out.b.Bytes(), types.b.Bytes(), services.b.Bytes()), nil
}

// request renders an object type on one line.
func (w *writer) request(t reflect.Type) string {
	var fields []string
	for i := range t.NumField() {
		f := t.Field(i)
		name, optional := named(f)
		fields = append(fields, name+mark(optional)+": "+w.typ(f.Type))
	}
	if len(fields) == 0 {
		return "Record<string, never>"
	}
	return "{ " + strings.Join(fields, "; ") + " }"
}

func (w *writer) answer(m rpc.Any, d rpc.Declared) string {
	t, list := m.Answers()
	if list {
		return "{ " + d.Noun + ": " + w.typ(t) + "[]; more: boolean }"
	}
	return w.typ(t)
}

func mark(optional bool) string {
	if optional {
		return "?"
	}
	return ""
}

// named is a field's name in JSON, and whether it may be left out.
func named(f reflect.StructField) (name string, optional bool) {
	name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
	return name, strings.Contains(options, "omitempty") || strings.Contains(options, "omitzero")
}

// typ returns a type's name, and collects it for declaration.
func (w *writer) typ(t reflect.Type) string {
	switch t {
	case reflect.TypeFor[json.RawMessage]():
		return "unknown"
	case reflect.TypeFor[time.Time]():
		return "string"
	case reflect.TypeFor[rpc.None]():
		return "Record<string, never>"
	}
	switch t.Kind() {
	case reflect.Pointer:
		return w.typ(t.Elem())
	case reflect.Slice:
		return w.typ(t.Elem()) + "[]"
	case reflect.Map:
		return "Record<string, " + w.typ(t.Elem()) + ">"
	case reflect.Interface:
		return "unknown"
	case reflect.Bool:
		return "boolean"
	case reflect.String:
		if t.PkgPath() == contractPath && contract.EnumValues(t) != nil {
			w.imported = append(w.imported, t.Name())
			return t.Name()
		}
		if t.PkgPath() == viewPath && len(w.values[t.Name()]) > 0 {
			return w.remember(t)
		}
		return "string"
	case reflect.Struct:
		if of, ok := t.FieldByName("Of"); ok && strings.HasPrefix(t.Name(), "ByName[") {
			return w.typ(of.Type)
		}
		if t.PkgPath() == contractPath {
			w.imported = append(w.imported, t.Name())
			return t.Name()
		}
		return w.remember(t)
	}
	return "number"
}

func (w *writer) remember(t reflect.Type) string {
	if !w.seen[t] {
		w.seen[t] = true
		w.shown = append(w.shown, t)
	}
	return t.Name()
}

// declare writes a type. Its id has the name that events give it.
func (w *writer) declare(t reflect.Type) {
	w.comment("", w.docs[t.Name()])
	if t.Kind() == reflect.String {
		w.line("export type %s = '%s'", t.Name(), strings.Join(w.values[t.Name()], "' | '"))
		w.line("")
		return
	}
	w.line("export interface %s {", t.Name())
	for i := range t.NumField() {
		f := t.Field(i)
		name, optional := named(f)
		if name == "-" {
			continue
		}
		if n, ok := reflect.Zero(t).Interface().(interface{ IDName() string }); ok && name == "id" {
			name = n.IDName()
		}
		text := w.docs[t.Name()+"."+f.Name]
		if text == "" {
			text = f.Tag.Get("doc")
		}
		w.comment("  ", text)
		typ := w.typ(f.Type)
		if f.Type.Kind() == reflect.Pointer && !optional {
			typ += " | null"
		}
		w.line("  %s%s: %s", name, mark(optional), typ)
	}
	w.line("}")
	w.line("")
}
