package rpc

import (
	"fmt"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"

	"choir.dev/choiros/contract"
)

// flat is a request as one JSON object: what HTTP has in a path, a query, a header and
// a body side by side.
type flat struct {
	typ   reflect.Type
	in    reflect.Type
	paths [][]int // of each field of t, in the request
	locs  []string
	body  bool
}

var atType = reflect.TypeFor[At]()

// flatten makes the flat form of a request's type.
func flatten(in reflect.Type) *flat {
	f := &flat{in: in}
	var fields []reflect.StructField
	add := func(sf reflect.StructField, name, loc string, path []int) {
		tag := reflect.StructTag(`json:"` + name + `" ` + string(sf.Tag))
		fields = append(fields, reflect.StructField{Name: sf.Name, Type: sf.Type, Tag: tag})
		f.paths, f.locs = append(f.paths, path), append(f.locs, loc)
	}
	var walk func(t reflect.Type, path []int, body bool)
	walk = func(t reflect.Type, path []int, body bool) {
		for i := range t.NumField() {
			sf := t.Field(i)
			at := append(append([]int{}, path...), i)
			switch {
			case sf.Type == atType, sf.Type == reflect.TypeFor[NoComputer]():
			case sf.Anonymous:
				walk(sf.Type, at, body)
			case !body && sf.Name == "Body":
				f.body = true
				walk(sf.Type, at, true)
			case body:
				if name := sf.Tag.Get("json"); name != "-" && sf.IsExported() {
					sf.Tag = reflect.StructTag(strings.Replace(string(sf.Tag), `json:"`+name+`"`, "", 1))
					add(sf, name, "body", at)
				}
			case sf.Tag.Get("path") != "":
				add(sf, sf.Tag.Get("path"), "path", at)
			case sf.Tag.Get("query") != "":
				name, _, _ := strings.Cut(sf.Tag.Get("query"), ",")
				add(sf, name+",omitempty", "query", at)
			case sf.Tag.Get("header") != "":
				add(sf, sf.Tag.Get("header")+",omitempty", "header", at)
			default:
				panic(fmt.Sprintf("rpc: %s.%s is in no place", in, sf.Name))
			}
		}
	}
	walk(in, nil, false)
	f.typ = reflect.StructOf(fields)
	return f
}

// decode reads a request strictly and checks its tags.
func (f *flat) decode(data []byte, in any) error {
	v := reflect.New(f.typ)
	if err := contract.DecodeStrict(data, MaxBusRequest, v.Interface()); err != nil {
		if contract.AsFieldError(err) != nil {
			return err
		}
		return &contract.FieldError{Field: "request", Reason: err.Error()}
	}
	to := reflect.ValueOf(in).Elem()
	for i, path := range f.paths {
		field := v.Elem().Field(i)
		if err := bounded(f.typ.Field(i), field); err != nil {
			return err
		}
		to.FieldByIndex(path).Set(field)
	}
	return nil
}

// bounded checks a value against its field's tags, which say the same of it over
// HTTP. A number that is left out is its default, and no page is larger than the
// largest: whoever asks on the bus takes what comes.
func bounded(sf reflect.StructField, v reflect.Value) error {
	name, _, _ := strings.Cut(sf.Tag.Get("json"), ",")
	wrong := func(reason string, args ...any) error {
		return &contract.FieldError{Field: name, Reason: fmt.Sprintf(reason, args...)}
	}
	number := func(tag string) (int64, bool) {
		n, err := strconv.ParseInt(sf.Tag.Get(tag), 10, 64)
		return n, err == nil
	}
	switch v.Kind() {
	case reflect.Int, reflect.Int64:
		if n, ok := number("default"); ok && v.Int() <= 0 {
			v.SetInt(n)
		}
		if n, ok := number("minimum"); ok && v.Int() < n {
			return wrong("must be at least %d", n)
		}
		if n, ok := number("maximum"); ok && v.Int() > n {
			v.SetInt(n)
		}
	case reflect.String:
		n := int64(utf8.RuneCountInString(v.String()))
		if least, ok := number("minLength"); ok && n < least {
			return wrong("is empty")
		}
		if most, ok := number("maxLength"); ok && n > most {
			return wrong("is longer than %d characters", most)
		}
		if p := sf.Tag.Get("pattern"); p != "" && !regexp.MustCompile(p).MatchString(v.String()) {
			return wrong("does not match %s", p)
		}
	case reflect.Slice:
		if least, ok := number("minItems"); ok && int64(v.Len()) < least {
			return wrong("is empty")
		}
		if most, ok := number("maxItems"); ok && int64(v.Len()) > most {
			return wrong("has too many entries; at most %d are allowed", most)
		}
	}
	return nil
}
