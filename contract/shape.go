package contract

import (
	"bytes"
	"encoding/json"
	"reflect"
	"strconv"
)

// checkShape refuses what encoding/json lets through: keys in another case,
// keys given twice (two readers would see two values), and null. It walks b,
// which is one valid JSON value that decodes into t.
func checkShape(b []byte, t reflect.Type) error {
	w := walker{data: b}
	w.space()
	return w.value(t, "")
}

type walker struct {
	data   []byte
	offset int
}

func (w *walker) space() {
	for w.offset < len(w.data) && (w.data[w.offset] == ' ' || w.data[w.offset] == '\n' || w.data[w.offset] == '\t' || w.data[w.offset] == '\r') {
		w.offset++
	}
}

// value walks one value. t is nil for a value of unknown shape, such as a tool's arguments,
// where anything is accepted.
func (w *walker) value(t reflect.Type, field string) error {
	for t != nil && t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t == rawType {
		t = nil
	}
	switch w.data[w.offset] {
	case '{':
		return w.object(t, field)
	case '[':
		return w.array(t, field)
	case '"':
		w.str()
		return nil
	case 'n':
		w.offset += len("null")
		if t != nil {
			return fieldErr(field, "is null; leave it out instead")
		}
		return nil
	}
	for w.offset < len(w.data) && bytes.IndexByte([]byte(",]} \n\t\r"), w.data[w.offset]) < 0 {
		w.offset++
	}
	return nil
}

// str walks a string and returns it as written, quotes included.
func (w *walker) str() []byte {
	start := w.offset
	for w.offset++; w.data[w.offset] != '"'; w.offset++ {
		if w.data[w.offset] == '\\' {
			w.offset++
		}
	}
	w.offset++
	return w.data[start:w.offset]
}

func (w *walker) object(t reflect.Type, field string) error {
	var fields []FieldRule
	var elem reflect.Type
	if t != nil {
		switch t.Kind() {
		case reflect.Struct:
			fields = Fields(t)
		case reflect.Map:
			elem = t.Elem()
		}
	}
	var seen uint64 // by index of the field; no struct has more than 64
	var names map[string]bool
	for w.offset++; ; w.offset++ {
		w.space()
		if w.data[w.offset] == '}' {
			w.offset++
			return nil
		}
		quoted := w.str()
		name := string(quoted[1 : len(quoted)-1])
		if bytes.IndexByte(quoted, '\\') >= 0 {
			if err := json.Unmarshal(quoted, &name); err != nil {
				return fieldErr(field, "has a key that is not text")
			}
		}
		path := name
		if field != "" {
			path = field + "." + name
		}
		child := elem
		if fields != nil {
			at := -1
			for i := range fields {
				if fields[i].Name == name {
					at = i
					break
				}
			}
			if at < 0 {
				return fieldErr(Shorten(path, 200), "is not a known field")
			}
			if seen&(1<<at) != 0 {
				return fieldErr(path, "is given twice")
			}
			seen |= 1 << at
			child = fields[at].Type
		} else if t != nil {
			if names[name] {
				return fieldErr(Shorten(path, 200), "is given twice")
			}
			if names == nil {
				names = map[string]bool{}
			}
			names[name] = true
		}
		w.space()
		w.offset++ // the colon
		w.space()
		if err := w.value(child, path); err != nil {
			return err
		}
		w.space()
		if w.data[w.offset] == '}' {
			w.offset++
			return nil
		}
	}
}

func (w *walker) array(t reflect.Type, field string) error {
	var elem reflect.Type
	if t != nil {
		elem = t.Elem()
	}
	w.offset++
	for n := 0; ; n++ {
		w.space()
		if w.data[w.offset] == ']' {
			w.offset++
			return nil
		}
		path := ""
		if elem != nil {
			path = field + "[" + strconv.Itoa(n) + "]"
		}
		if err := w.value(elem, path); err != nil {
			return err
		}
		w.space()
		if w.data[w.offset] == ',' {
			w.offset++
		}
	}
}
