package contract

import (
	"bytes"
	"encoding/json"
	"reflect"
)

// refPrefix begins every blob reference.
const refPrefix = "sha256:"

// Refs returns every blob reference anywhere in an event's data, each once. It recognises
// them by their form and not by field, so that no type, known to this build or not, can
// hold a blob that garbage collection does not see.
func Refs(data []byte) []BlobRef {
	const length = len(refPrefix) + 64
	var out []BlobRef
	var seen map[BlobRef]bool
	for {
		at := bytes.Index(data, []byte(refPrefix))
		if at < 0 || len(data)-at < length {
			return out
		}
		ref := BlobRef(data[at : at+length])
		if ref.Validate() != nil {
			data = data[at+len(refPrefix):]
			continue
		}
		if seen == nil {
			seen = map[BlobRef]bool{}
		}
		if !seen[ref] {
			seen[ref] = true
			out = append(out, ref)
		}
		data = data[at+length:]
	}
}

// Needed returns the blobs without which an event would say less than it did: every field
// of type BlobRef, wherever it is in the type, except those tagged blob:"elsewhere", which
// are hashes of content that is kept elsewhere. So a new field is needed unless its type
// says otherwise, and of a type that this build does not know every reference is. The data
// need not be valid.
func Needed(eventType string, data []byte) []BlobRef {
	all := Refs(data)
	info, ok := Lookup(eventType)
	if !ok || len(all) == 0 {
		return all
	}
	p := info.New()
	if err := json.Unmarshal(data, p); err != nil {
		return all
	}
	var out []BlobRef
	needed(reflect.ValueOf(p), &out)
	return out
}

func needed(v reflect.Value, out *[]BlobRef) {
	switch v.Kind() {
	case reflect.String:
		if v.Type() == reflect.TypeFor[BlobRef]() && v.String() != "" {
			*out = append(*out, BlobRef(v.String()))
		}
	case reflect.Pointer, reflect.Interface:
		if !v.IsNil() {
			needed(v.Elem(), out)
		}
	case reflect.Slice, reflect.Array:
		for i := range v.Len() {
			needed(v.Index(i), out)
		}
	case reflect.Map:
		for it := v.MapRange(); it.Next(); {
			needed(it.Key(), out)
			needed(it.Value(), out)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if f := v.Type().Field(i); f.IsExported() && f.Tag.Get("blob") != "elsewhere" {
				needed(v.Field(i), out)
			}
		}
	}
}
