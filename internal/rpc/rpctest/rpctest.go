// Package rpctest makes requests from the registry of methods, for tests that call every
// method: a new method is tested as soon as it is declared.
package rpctest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"reflect"
	"strings"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/rpc"
)

// values are what fields of these names contain in a well-formed request. Other fields
// contain an id.
var values = map[string]any{
	"path": "a", "from": "a", "to": "", "name": "name", "entry": "e1", "url": "https://example.org/a", "argv": []string{"true"}, "checkpoint": strings.Repeat("a", 40),
	"text": "words", "value": "a value", "answer": "deny", "digest": strings.Repeat("7", 64), "model": "", "role": "viewer", "powers": []string{}, "token": strings.Repeat("a", 43),
	"type": "prompt.submitted", "data": json.RawMessage(`{"text":"words"}`), "message": "words", "cwd": "", "subject": "", "undo": true, "mode": "0644", "server": "library",
}

// of overrides values for methods in which a name means something else.
var of = map[string]map[string]any{
	"files.move":         {"to": "b"},
	"document.revise":    {"base": 1},
	"checkpoint.diff":    {"from": "", "path": ""},
	"action":             {"run": ""},
	"checkpoint.undo":    {"undo": false},
	"checkpoint.restore": {"run": ""},
	"files.list":         {"after": ""},
	"trash.list":         {"before": ""},
	"events.read":        {"run": "", "task": "", "type": []string{}},
	"egress.list":        {"run": ""},
	"files.add_tar":      {"origin": ""},
	"run.answer":         {"answer": "yes"},
	"effect.list":        {"run": "", "outcome": "unknown"},
	"effect.resolve":     {"found": "done"},
	"effect.compensate":  {"words": "keep the account"},
	"review.answer":      {"attempt": 1, "review": 1, "work": strings.Repeat("a", 40), "decision": "discard"},
	"memory.remember":    {"from": []string{}},
	"mcp.approve":        {"tools": []map[string]string{{"tool": "look", "digest": "d"}}},
	"mcp.revoke":         {"tools": []string{"look"}},
	"git.token":          {"repository": "", "days": 1},
	"run.model":          {"model": "smart"},
}

// Request is an HTTP request.
type Request struct {
	Verb, Target string
	Content      string // the type of Body
	Body         string
}

// HTTP makes a well-formed HTTP request for a method of a computer. fields overrides the
// values of fields.
func HTTP(m rpc.Any, computer string, fields map[string]any) Request {
	d := m.About()
	r := Request{Verb: d.HTTP.Verb, Target: strings.Replace(d.Address(), "{computer}", computer, 1)}
	query, body, hasBody := url.Values{}, map[string]any{}, false
	each(m, fields, func(name string, f reflect.StructField, v any) {
		switch {
		case f.Tag.Get("path") != "":
			r.Target = strings.Replace(r.Target, "{"+name+"}", url.PathEscape(fmt.Sprint(v)), 1)
		case f.Tag.Get("query") != "":
			if !reflect.ValueOf(v).IsZero() && reflect.ValueOf(v).Kind() != reflect.Slice {
				query.Set(name, fmt.Sprint(v))
			}
		case f.Tag.Get("header") != "":
		default:
			hasBody = true
			if !reflect.ValueOf(v).IsZero() {
				body[name] = v
			}
		}
	})
	if len(query) > 0 {
		r.Target += "?" + query.Encode()
	}
	switch d.Kind {
	case rpc.Upload:
		r.Content, r.Body = "application/octet-stream", "bytes"
		if strings.HasSuffix(d.HTTP.Path, "/tar") {
			r.Content = "application/x-tar"
		}
	case rpc.Duplex:
		r.Content, r.Body = "application/x-ndjson", "{\"argv\":[\"true\"]}\n"
	default:
		if hasBody {
			b, err := json.Marshal(body)
			if err != nil {
				panic(err)
			}
			r.Content, r.Body = "application/json", string(b)
		}
	}
	if r.Verb == "" {
		r.Verb = http.MethodGet
	}
	return r
}

// Bus makes a well-formed request for a method on the bus, and returns the subject that it
// is sent on.
func Bus(m rpc.Any, cid contract.CID, fields map[string]any) (subject string, body []byte) {
	all := map[string]any{}
	each(m, fields, func(name string, _ reflect.StructField, v any) {
		if !reflect.ValueOf(v).IsZero() {
			all[name] = v
		}
	})
	body, err := json.Marshal(all)
	if err != nil {
		panic(err)
	}
	name := m.About().Name
	if name == rpc.Action.Name {
		return contract.SubjectAction(cid), body
	}
	service, method, _ := strings.Cut(name, ".")
	return contract.SubjectService(cid, service, method), body
}

// each calls f with every field of a method's request and a value for it.
func each(m rpc.Any, fields map[string]any, f func(name string, sf reflect.StructField, v any)) {
	t := m.Asks()
	for i := range t.NumField() {
		sf := t.Field(i)
		name, _, _ := strings.Cut(sf.Tag.Get("json"), ",")
		f(name, sf, value(m.About().Name, name, sf, fields))
	}
}

func value(method, name string, sf reflect.StructField, fields map[string]any) any {
	t := sf.Type
	for _, known := range []map[string]any{fields, of[method], values} {
		if v, ok := known[name]; ok {
			return v
		}
	}
	if one, _, _ := strings.Cut(sf.Tag.Get("enum"), ","); one != "" {
		return one
	}
	if t.Kind() == reflect.String {
		if t == reflect.TypeFor[contract.CID]() {
			return ""
		}
		return contract.NewID()
	}
	return reflect.Zero(t).Interface()
}
