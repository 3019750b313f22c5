package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"time"

	"github.com/invopop/jsonschema"

	"choir.dev/choiros/contract"
)

const (
	packagePath = "choir.dev/choiros/contract"
	baseURI     = "https://choir.dev/schema/v1/"

	idPattern     = `[0-9a-f]{8}-[0-9a-f]{4}-[78][0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}`
	commitPattern = `[0-9a-f]{40}|[0-9a-f]{64}`
	blobPattern   = `sha256:[0-9a-f]{64}`
	// badPath matches every path that is not clean and inside the workspace.
	badPath = `^/|//|/$|/\.(/|$)|^\./|(^|/)\.\.(/|$)|^\.git(/|$)`
)

// root is a type with a schema file of its own.
type root struct {
	file  string
	value any
	title string
}

func roots() []root {
	out := []root{
		{"event.json", contract.Event{}, "The envelope of every event."},
		{"director-task.json", contract.DirectorTask{}, "What the Director asks of the Associate."},
		{"associate-result.json", contract.AssociateResult{}, "What the Associate answers."},
		{"turn-request.json", contract.TurnRequest{}, "A request for one model turn."},
		{"turn.json", contract.Turn{}, "A model's finished answer."},
		{"turn-chunk.json", contract.TurnChunk{}, "One line of a streamed answer."},
		{"theme.json", contract.Theme{}, "artifacts/system/theme.json."},
	}
	for _, info := range contract.Types() {
		out = append(out, root{"data/" + info.Type + ".json", info.New(), info.Type + ": " + info.Doc})
	}
	return out
}

// readComments collects the doc comments of the contract's types and fields,
// under package.Type and package.Type.Field.
func readComments(repo string) (map[string]string, error) {
	// AddGoComments takes paths as parts of package names, so it must run in the
	// repository's root.
	back, err := os.Getwd()
	if err != nil {
		return nil, err
	}
	abs, err := filepath.Abs(filepath.Join(repo, "contract"))
	if err != nil {
		return nil, err
	}
	if err := os.Chdir(abs); err != nil {
		return nil, err
	}
	r := new(jsonschema.Reflector)
	err = r.AddGoComments(packagePath, "./", jsonschema.WithFullComment())
	if cerr := os.Chdir(back); err == nil {
		err = cerr
	}
	for k, v := range r.CommentMap {
		r.CommentMap[k] = strings.Join(strings.Fields(v), " ")
	}
	return r.CommentMap, err
}

func schemas(docs map[string]string) (map[string][]byte, error) {
	files := map[string][]byte{}
	for _, root := range roots() {
		s := reflectSchema(root.value, docs)
		s.ID = jsonschema.ID(baseURI + root.file)
		s.Title = root.title
		raw, err := json.MarshalIndent(s, "", "  ")
		if err != nil {
			return nil, fmt.Errorf("%s: %w", root.file, err)
		}
		files["contract/schema/"+root.file] = append(raw, '\n')
	}
	return files, nil
}

func reflectSchema(v any, docs map[string]string) *jsonschema.Schema {
	named := map[string]reflect.Type{} // definitions by name
	r := &jsonschema.Reflector{
		Anonymous:                  true,
		ExpandedStruct:             true,
		RequiredFromJSONSchemaTags: true, // nothing is required until finish says so
		CommentMap:                 docs,
		Mapper:                     mapped,
		Namer: func(t reflect.Type) string {
			named[t.Name()] = t
			return t.Name()
		},
	}
	t := reflect.TypeOf(v)
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	s := r.ReflectFromType(t)
	finish(s, t)
	for name, def := range s.Definitions {
		finish(def, named[name])
	}
	delete(s.Definitions, t.Name())
	return s
}

// mapped returns the schemas of types whose JSON differs from what their Go kind suggests.
func mapped(t reflect.Type) *jsonschema.Schema {
	if values := contract.EnumValues(t); values != nil {
		s := &jsonschema.Schema{Type: "string"}
		for _, v := range values {
			s.Enum = append(s.Enum, v)
		}
		return s
	}
	switch t {
	case reflect.TypeFor[json.RawMessage]():
		return &jsonschema.Schema{}
	case reflect.TypeFor[time.Time]():
		return &jsonschema.Schema{Type: "string", Format: "date-time"}
	case reflect.TypeFor[contract.CID]():
		return &jsonschema.Schema{Type: "string", Pattern: `^[a-z0-9]{16}$`}
	}
	return nil
}

// finish adds the rules of a struct's fields to its schema.
func finish(s *jsonschema.Schema, t reflect.Type) {
	for _, f := range contract.Fields(t) {
		prop, ok := s.Properties.Get(f.Name)
		if !ok {
			panic("gen: " + t.Name() + " has no property " + f.Name)
		}
		if f.Needed {
			s.Required = append(s.Required, f.Name)
		}
		constrain(prop, f.Type, f.Rule)
	}
	special(s, t)
}

func constrain(s *jsonschema.Schema, t reflect.Type, r contract.Rule) {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch {
	case t == reflect.TypeFor[json.RawMessage](), t == reflect.TypeFor[time.Time](), t.Kind() == reflect.Struct:
		return
	case contract.EnumValues(t) != nil:
		if !r.Required {
			s.Enum = append([]any{""}, s.Enum...)
		}
	case t == reflect.TypeFor[contract.CID]():
	case t == reflect.TypeFor[contract.ActorName]():
		s.Pattern = form("("+actorKinds()+")(:.+)?", r.Required)
	case t == reflect.TypeFor[contract.BlobRef](), t == reflect.TypeFor[contract.Link]():
		s.Pattern = form(blobPattern, r.Required)
	case t.Kind() == reflect.String:
		constrainText(s, r)
	case t.Kind() == reflect.Slice:
		if r.NonEmpty {
			s.MinItems = ptr(1)
		}
		if r.Items > 0 {
			s.MaxItems = ptr(r.Items)
		}
		if r.Elem != nil {
			constrain(s.Items, t.Elem(), *r.Elem)
		} else {
			constrain(s.Items, t.Elem(), contract.Rule{})
		}
	case t.Kind() == reflect.Map:
		if r.Items > 0 {
			s.MaxProperties = ptr(r.Items)
		}
	case t.Kind() != reflect.Bool:
		if r.Min != nil {
			s.Minimum = json.Number(fmt.Sprintf("%.0f", *r.Min))
		}
		if r.Max != nil {
			s.Maximum = json.Number(fmt.Sprintf("%.0f", *r.Max))
		}
	}
}

// constrainText states a text's bounds. Lengths are in characters where the
// rule counts bytes, so the schema is never the stricter one.
func constrainText(s *jsonschema.Schema, r contract.Rule) {
	switch r.Form {
	case "id":
		s.Pattern = form(idPattern, r.Required)
		return
	case "commit":
		s.Pattern = form(commitPattern, r.Required)
		return
	case "path":
		s.MaxLength = ptr(4096)
		s.Not = &jsonschema.Schema{Pattern: badPath}
	case "time":
		s.Pattern = form(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d([.,]\d+)?(Z|[+-]\d\d:\d\d)`, r.Required)
		return
	}
	if r.Required {
		s.MinLength = ptr(1)
	}
	if r.Max != nil {
		s.MaxLength = ptr(int(*r.Max))
	}
}

// actorKinds is a pattern that matches every kind of actor.
func actorKinds() string {
	names := make([]string, len(contract.ActorKinds))
	for i, k := range contract.ActorKinds {
		names[i] = string(k)
	}
	return strings.Join(names, "|")
}

func form(pattern string, required bool) string {
	if required {
		return "^(" + pattern + ")$"
	}
	return "^(" + pattern + ")?$"
}

// special adds the rules between fields that a schema can express.
func special(s *jsonschema.Schema, t reflect.Type) {
	prop := func(name string) *jsonschema.Schema {
		p, ok := s.Properties.Get(name)
		if !ok {
			panic("gen: " + t.Name() + " has no property " + name)
		}
		return p
	}
	switch t {
	case reflect.TypeFor[contract.Event]():
		prop("specversion").Const = "1.0"
		prop("source").Pattern = `^/computers/[a-z0-9]{16}/(user|` + actorKinds() + `)$`
		prop("type").Pattern = `^[a-z][a-z0-9_]*(\.[a-z][a-z0-9_]*){1,3}$`
		prop("datacontenttype").Enum = []any{"", "application/json"}
	case reflect.TypeFor[contract.Step]():
		s.MinProperties, s.MaxProperties = ptr(1), ptr(1)
	case reflect.TypeFor[contract.Input](), reflect.TypeFor[contract.Part](), reflect.TypeFor[contract.TurnChunk]():
		s.MinProperties = ptr(1)
	case reflect.TypeFor[contract.RunReported]():
		prop("status").Enum = []any{contract.RunDone, contract.RunFailed, contract.RunCancelled}
	case reflect.TypeFor[contract.AttemptMoved]():
		prop("state").Enum = []any{contract.AttemptBegun, contract.AttemptFinished, contract.AttemptMerged, contract.AttemptVerifying,
			contract.AttemptVerified, contract.AttemptPublishing, contract.AttemptTakingBack, contract.AttemptLeft}
	case reflect.TypeFor[contract.DocumentRevised]():
		prop("path").Pattern = `^artifacts/(.|\n)*\.md$`
	case reflect.TypeFor[contract.WindowOpened]():
		p := prop("props")
		p.PropertyNames = &jsonschema.Schema{MinLength: ptr(1), MaxLength: ptr(100)}
		p.AdditionalProperties = &jsonschema.Schema{Type: "string", MaxLength: ptr(4096)}
	case reflect.TypeFor[contract.ToolSpec]():
		prop("schema").Type = "object"
		s.Required = append(s.Required, "schema")
	case reflect.TypeFor[contract.Theme]():
		prop("scheme").Enum = []any{"dark", "light"}
		colors := prop("colors")
		colors.Properties = jsonschema.NewProperties()
		for _, name := range contract.ThemeColors {
			colors.Properties.Set(name, &jsonschema.Schema{Type: "string", Pattern: contract.ColorPattern})
		}
		colors.AdditionalProperties = jsonschema.FalseSchema
		colors.Required = contract.ThemeColors
		s.Required = append(s.Required, "colors")
	}
}

func ptr(n int) *uint64 { u := uint64(n); return &u }
