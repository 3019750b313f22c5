package rpc

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"reflect"
	"strings"

	decode "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// Request is a call over HTTP.
type Request struct {
	Verb, Path string // from the root
	Query      url.Values
	Header     http.Header
	Body       []byte // JSON; nil: none
}

// Request turns a call to a computer into an HTTP request.
func (m *Method[In, Out]) Request(computer string, in In) (Request, error) {
	if m.HTTP.ID == "" {
		return Request{}, fmt.Errorf("%s is not over HTTP", m.Name)
	}
	r := Request{Verb: m.HTTP.Verb, Path: strings.Replace(m.Address(), "{computer}", url.PathEscape(computer), 1), Query: url.Values{}, Header: http.Header{}}
	v := reflect.ValueOf(in)
	for i, path := range m.flat().paths {
		field, sf := v.FieldByIndex(path), m.flat().typ.Field(i)
		name, _, _ := strings.Cut(sf.Tag.Get("json"), ",")
		switch m.flat().locs[i] {
		case "path":
			r.Path = strings.Replace(r.Path, "{"+name+"}", url.PathEscape(field.String()), 1)
		case "header":
			if !field.IsZero() {
				r.Header.Set(name, field.String())
			}
		case "query":
			if field.IsZero() {
				break
			}
			if field.Kind() != reflect.Slice {
				r.Query.Set(name, fmt.Sprint(field.Interface()))
				break
			}
			for n := range field.Len() {
				r.Query.Add(name, fmt.Sprint(field.Index(n).Interface()))
			}
		}
	}
	if !m.flat().body {
		return r, nil
	}
	var err error
	r.Body, err = json.Marshal(v.FieldByName("Body").Interface())
	return r, err
}

// Decode decodes an answer, which has to be exactly one JSON value of at most the size that
// a client reads. Names must match in case. Names that come twice and unpaired surrogates
// are accepted, for the log keeps a model's arguments as it wrote them.
func Decode(from io.Reader, to any) error {
	return decode.UnmarshalRead(io.LimitReader(from, maxClient), to, jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
}

type reader[Out any] func(body io.Reader, more bool) (Out, error)

// Read decodes an answer. more is what the response's header says about a list.
func (m *Method[In, Out]) Read(body io.Reader, more bool) (Out, error) {
	return m.read(body, more)
}

func readOne[Out any](body io.Reader, _ bool) (out Out, err error) {
	return out, Decode(body, &out)
}

func readNone(body io.Reader, _ bool) (None, error) {
	_, err := io.Copy(io.Discard, io.LimitReader(body, maxClient))
	return None{}, err
}

func readList[T any](body io.Reader, more bool) (List[T], error) {
	out := List[T]{More: more}
	err := Decode(body, &out.Items)
	return out, err
}
