package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"sort"
	"strings"
	"time"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/contract/themes"
)

// typescript renders the types as the host encodes them: a field that Go always writes is
// required, even where a decoder would accept its absence.
func typescript(docs map[string]string) []byte {
	w := &tsWriter{docs: docs, seen: map[reflect.Type]bool{}}
	for _, root := range roots() {
		w.visit(reflect.TypeOf(root.value))
	}
	w.visit(reflect.TypeFor[contract.ActorKind]()) // events have it only in their source
	sort.Slice(w.types, func(i, j int) bool { return w.types[i].Name() < w.types[j].Name() })

	w.line("// Generated from contract/ by go generate ./contract. Do not edit.")
	w.line("")
	for _, t := range w.types {
		if values := contract.EnumValues(t); values != nil {
			w.comment("", packagePath+"."+t.Name())
			w.line("export type %s = %s", t.Name(), union(values))
			w.line("")
		}
	}
	for _, t := range w.types {
		if t.Kind() == reflect.Struct {
			w.iface(t)
		}
	}
	w.registry()
	w.constants()
	return w.b.Bytes()
}

type tsWriter struct {
	b     bytes.Buffer
	docs  map[string]string
	seen  map[reflect.Type]bool
	types []reflect.Type
}

func (w *tsWriter) line(format string, args ...any) {
	fmt.Fprintf(&w.b, format, args...)
	w.b.WriteByte('\n')
}

func (w *tsWriter) comment(indent, key string) {
	if text := w.docs[key]; text != "" {
		w.line("%s/** %s */", indent, strings.ReplaceAll(text, "*/", "* /"))
	}
}

// visit collects a type and those it is made of.
func (w *tsWriter) visit(t reflect.Type) {
	switch t {
	case reflect.TypeFor[json.RawMessage](), reflect.TypeFor[time.Time](), reflect.TypeFor[contract.CID](), reflect.TypeFor[contract.BlobRef](), reflect.TypeFor[contract.Link](), reflect.TypeFor[contract.ActorName]():
		return
	}
	switch t.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Map:
		w.visit(t.Elem())
	case reflect.String:
		if contract.EnumValues(t) != nil && !w.seen[t] {
			w.seen[t] = true
			w.types = append(w.types, t)
		}
	case reflect.Struct:
		if w.seen[t] {
			return
		}
		w.seen[t] = true
		w.types = append(w.types, t)
		for _, f := range contract.Fields(t) {
			w.visit(f.Type)
		}
	}
}

func (w *tsWriter) iface(t reflect.Type) {
	w.comment("", packagePath+"."+t.Name())
	fields := contract.Fields(t)
	if len(fields) == 0 {
		w.line("export type %s = Record<string, never>", t.Name())
		w.line("")
		return
	}
	w.line("export interface %s {", t.Name())
	for _, f := range fields {
		w.comment("  ", packagePath+"."+t.Name()+"."+t.Field(f.Index).Name)
		mark := ""
		if f.Omit {
			mark = "?"
		}
		typ := tsType(f.Type)
		switch {
		case t == reflect.TypeFor[contract.Event]() && f.Name == "specversion":
			typ = "'1.0'"
		case t == reflect.TypeFor[contract.Theme]() && f.Name == "scheme":
			typ = "'dark' | 'light'"
		case t == reflect.TypeFor[contract.Theme]() && f.Name == "colors":
			typ = "Record<ThemeColor, string>"
		}
		w.line("  %s%s: %s", f.Name, mark, typ)
	}
	w.line("}")
	w.line("")
}

func tsType(t reflect.Type) string {
	switch t {
	case reflect.TypeFor[json.RawMessage]():
		return "unknown"
	case reflect.TypeFor[time.Time]():
		return "string"
	}
	switch t.Kind() {
	case reflect.Pointer:
		return tsType(t.Elem())
	case reflect.Slice:
		return tsType(t.Elem()) + "[]"
	case reflect.Map:
		return "Record<string, " + tsType(t.Elem()) + ">"
	case reflect.Bool:
		return "boolean"
	case reflect.Struct:
		return t.Name()
	case reflect.String:
		if contract.EnumValues(t) != nil {
			return t.Name()
		}
		return "string"
	}
	return "number"
}

// registry writes the table of event types.
func (w *tsWriter) registry() {
	w.line("/** The data of each event type. */")
	w.line("export interface EventData {")
	var browser []string
	for _, info := range contract.Types() {
		w.line("  /** %s */", info.Doc)
		w.line("  '%s': %s", info.Type, reflect.TypeOf(info.New()).Elem().Name())
		if info.Action {
			browser = append(browser, info.Type)
		}
	}
	w.line("}")
	w.line("")
	w.line("export type EventType = keyof EventData")
	w.line("")
	w.line("/** An event whose type is known to be T. Data beyond MAX_INLINE_DATA are not inline: dataref names them. */")
	w.line("export type EventOf<T extends EventType> = Event & { type: T; data?: EventData[T] }")
	w.line("")
	w.line("/** Any known event; switch on its type. */")
	w.line("export type KnownEvent = { [T in EventType]: EventOf<T> }[EventType]")
	w.line("")
	w.line("/** Every event type, sorted. */")
	w.line("export const EVENT_TYPES = [")
	for _, info := range contract.Types() {
		w.line("  '%s',", info.Type)
	}
	w.line("] as const satisfies readonly EventType[]")
	w.line("")
	w.line("/** The types a desktop session may post as its user. */")
	w.line("export const ACTION_TYPES = [")
	for _, name := range browser {
		w.line("  '%s',", name)
	}
	w.line("] as const satisfies readonly EventType[]")
	w.line("")
	w.line("export type ActionType = (typeof ACTION_TYPES)[number]")
	w.line("")
}

func (w *tsWriter) constants() {
	w.line("/** The names a theme must give a colour for. */")
	w.line("export const THEME_COLORS = [")
	for _, name := range contract.ThemeColors {
		w.line("  '%s',", name)
	}
	w.line("] as const")
	w.line("")
	w.line("export type ThemeColor = (typeof THEME_COLORS)[number]")
	w.line("")
	w.line("/** The themes that come with a computer. */")
	w.line("export const THEMES = [")
	for _, t := range themes.All() {
		w.line("  { name: '%s', scheme: '%s', radius: %d, colors: {", t.Name, t.Scheme, t.Radius)
		for _, name := range contract.ThemeColors {
			w.line("    '%s': '%s',", name, t.Colors[name])
		}
		w.line("  } },")
	}
	w.line("] as const satisfies readonly Theme[]")
	w.line("")
	w.line("/** Version of the task contract. */")
	w.line("export const VERSION = %d", contract.Version)
	for _, c := range []struct {
		name, doc string
		value     int
	}{
		{"MAX_INLINE_DATA", "Data beyond this many bytes travel as a blob.", contract.MaxInlineData},
		{"MAX_EVENT", "A whole encoded event, in bytes.", contract.MaxEvent},
		{"MAX_SEQUENCE", "The largest sequence and epoch.", contract.MaxSequence},
		{"MAX_TASK", "An encoded task or result, in bytes.", contract.MaxTask},
		{"MAX_TURN", "An encoded model request or turn, in bytes.", contract.MaxTurn},
		{"MAX_THEME", "A theme file, in bytes.", contract.MaxTheme},
	} {
		w.line("/** %s */", c.doc)
		w.line("export const %s = %d", c.name, c.value)
	}
}

func union(values []string) string {
	quoted := make([]string, len(values))
	for i, v := range values {
		quoted[i] = "'" + v + "'"
	}
	return strings.Join(quoted, " | ")
}
