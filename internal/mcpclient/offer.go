package mcpclient

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/defence"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/lazy"
	"choir.dev/choiros/internal/tool"
	"choir.dev/choiros/internal/tool/schema"
)

// Limits of what a server offers.
const (
	maxTools       = 64       // of one server
	maxName        = 128      // bytes
	maxDescription = 4 << 10  // bytes
	maxSchema      = 16 << 10 // bytes
	maxDepth       = 12       // levels of a schema
	maxNodes       = 500      // objects and lists of a schema
)

// Offer is a tool that a server offers, with what a person is shown before it is used.
type Offer struct {
	// Name is what the server calls it.
	Name string
	// Digest is of all that a model or a person is told of it. What was approved was this.
	Digest string
	// Definition is all that the digest is of, from which Recall makes the offer again.
	Definition json.RawMessage
	// Says is whether the server says that it only reads, which is the server's word, and Harmless whether it says that
	// a call which was made once changes nothing more when it is made again.
	Says, Harmless bool
	// Tool is its declaration, unless Refused says why it can't be used.
	Tool    tool.Tool
	Refused string
}

// Approved is what a person approved of a tool.
type Approved struct {
	Digest string `json:"digest"`
	// Reads says that the person trusts the server's word that it only reads. Both are needed:
	// otherwise a call is irreversible.
	Reads bool `json:"reads,omitempty"`
}

var (
	serverName = lazy.Regexp(`^[a-z][a-z0-9]{0,19}$`)
	notInNames = lazy.Regexp(`[^a-z0-9_]+`)
)

// CheckName refuses what can't be a server's name.
func CheckName(name string) error {
	if !serverName().MatchString(name) {
		return fault.New("mcpclient.CheckName", fault.Invalid, "Give 1 to 20 lower case letters and digits, a letter first.", fmt.Errorf("%q can't be a server's name", name))
	}
	return nil
}

// Offers makes declarations of what a server lists. Two tools that would have one name are both
// refused, since nobody could say which of them was approved.
func Offers(server string, listed []*mcp.Tool) ([]Offer, error) {
	if err := CheckName(server); err != nil {
		return nil, err
	}
	if len(listed) > maxTools {
		return nil, fault.New("mcpclient.Offers", fault.Exhausted, "Use a server that offers fewer.", fmt.Errorf("it offers %d tools; at most %d are taken", len(listed), maxTools))
	}
	names := map[string]int{}
	out := make([]Offer, 0, len(listed))
	for _, t := range listed {
		if t == nil {
			return nil, fault.New("mcpclient.Offers", fault.Invalid, "", errors.New("it offers a tool that is nothing"))
		}
		o := offer(server, t)
		names[o.Tool.Name]++
		out = append(out, o)
	}
	for i, o := range out {
		if names[o.Tool.Name] > 1 && !defence.Off(defence.MCPNames) {
			out[i].Refused = "another of its tools would have the same name here"
		}
	}
	return out, nil
}

// Recall makes the offer again that had a definition and a digest, for a computer whose log holds what
// was approved.
func Recall(server string, definition json.RawMessage, digest string) (Offer, error) {
	const op = "mcpclient.Recall"
	var t mcp.Tool
	if err := json.Unmarshal(definition, &t); err != nil {
		return Offer{}, fault.New(op, fault.Invalid, "Approve it again.", err)
	}
	o := offer(server, &t)
	switch {
	case o.Digest != digest:
		return Offer{}, fault.New(op, fault.Conflict, "Approve it again.", fmt.Errorf("what %s was approved as is not what the log holds of it", t.Name))
	case o.Refused != "":
		return Offer{}, fault.New(op, fault.Invalid, "Approve it again.", fmt.Errorf("%s can't be used: %s", t.Name, o.Refused))
	}
	return o, nil
}

func offer(server string, t *mcp.Tool) Offer {
	o := Offer{Name: t.Name, Says: t.Annotations != nil && t.Annotations.ReadOnlyHint, Harmless: t.Annotations != nil && t.Annotations.IdempotentHint}
	name := "mcp__" + server + "__" + strings.Trim(notInNames().ReplaceAllString(strings.ToLower(t.Name), "_"), "_")
	o.Tool = tool.Tool{
		Name: name, Description: oneText(t.Description), Executor: tool.Host,
		Effects: []tool.Effect{tool.Network, tool.Irreversible}, Callers: []tool.Caller{tool.Agent},
		Limits: tool.Limits{In: 64 << 10, Out: 64 << 10, Time: 2 * time.Minute},
	}
	raw, err := json.Marshal(t.InputSchema)
	if err == nil {
		o.Definition, err = json.Marshal(mcp.Tool{Name: t.Name, Title: t.Title, Description: t.Description, InputSchema: json.RawMessage(raw), Annotations: t.Annotations})
		sum := sha256.Sum256(o.Definition)
		o.Digest = hex.EncodeToString(sum[:])
	}
	if err == nil {
		o.Tool.Schema, err = plain(raw)
	}
	switch {
	case err != nil:
		o.Refused = err.Error()
	case t.Description == "" || len(t.Description) > maxDescription:
		o.Refused = fmt.Sprintf("its description is empty, or longer than %d bytes", maxDescription)
	case len(o.Definition) > contract.MaxMCPTool:
		o.Refused = fmt.Sprintf("what it says of itself has more than %d bytes", contract.MaxMCPTool)
	case len(t.Name) > maxName || oneText(t.Name) != t.Name || strings.ContainsAny(t.Name, "\n\t"):
		o.Refused = "its name is too long, or has characters that can't be seen"
	case len(name) > 63:
		o.Refused = "its name is too long"
	default:
		if _, err := tool.NewRegistry(o.Tool); err != nil {
			o.Refused = fault.Text(err)
		}
	}
	return o
}

// oneText is a description without what a terminal or a page would obey.
func oneText(s string) string {
	return strings.TrimSpace(strings.Map(func(r rune) rune {
		if r != '\n' && r != '\t' && !unicode.IsGraphic(r) {
			return -1
		}
		return r
	}, strings.ToValidUTF8(s, "")))
}

// annotations of a schema say nothing that a value must fit.
var annotations = []string{"$schema", "$comment", "title", "default", "examples", "format"}

// plain takes the annotations out of a schema and refuses one that is too large to be checked, or
// that says what can't be enforced.
func plain(raw []byte) (json.RawMessage, error) {
	if len(raw) > maxSchema && !defence.Off(defence.MCPSchema) {
		return nil, fmt.Errorf("its schema has %d bytes; at most %d are taken", len(raw), maxSchema)
	}
	if depth := deepest(raw); depth > maxDepth && !defence.Off(defence.MCPSchema) {
		return nil, fmt.Errorf("its schema has %d levels; at most %d are taken", depth, maxDepth)
	}
	var v map[string]any
	if err := json.Unmarshal(raw, &v); err != nil {
		return nil, errors.New("its schema is no object")
	}
	nodes := 0
	stripped(v, &nodes)
	if nodes > maxNodes && !defence.Off(defence.MCPSchema) {
		return nil, fmt.Errorf("its schema has more than %d parts", maxNodes)
	}
	if v["type"] == "object" && v["properties"] == nil {
		v["properties"] = map[string]any{}
	}
	out, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	if _, err := schema.Compile(out); err != nil {
		return nil, err
	}
	return out, nil
}

// stripped removes annotations from a schema and those within it.
func stripped(s map[string]any, nodes *int) {
	*nodes++
	for _, key := range annotations {
		delete(s, key)
	}
	if properties, ok := s["properties"].(map[string]any); ok {
		for _, p := range properties {
			if inner, ok := p.(map[string]any); ok {
				stripped(inner, nodes)
			}
		}
	}
	if items, ok := s["items"].(map[string]any); ok {
		stripped(items, nodes)
	}
}

// deepest counts how deep a JSON value goes, without building it.
func deepest(raw []byte) int {
	dec := json.NewDecoder(bytes.NewReader(raw))
	depth, most := 0, 0
	for {
		t, err := dec.Token()
		if err != nil {
			return most
		}
		switch t {
		case json.Delim('{'), json.Delim('['):
			depth++
			most = max(most, depth)
		case json.Delim('}'), json.Delim(']'):
			depth--
		}
	}
}

// Usable divides what a server offers now into what a person approved as it is, and what waits for
// them: a tool that is new, and one that is other than what was approved.
func Usable(offers []Offer, approved map[string]Approved) (use []Offer, ask []Offer) {
	for _, o := range offers {
		was, ok := approved[o.Name]
		switch {
		case o.Refused != "":
		case !ok, was.Digest != o.Digest && !defence.Off(defence.MCPApproved):
			ask = append(ask, o)
		default:
			if was.Reads && o.Says {
				o.Tool.Effects = []tool.Effect{tool.Network}
			}
			use = append(use, o)
		}
	}
	return slices.Clip(use), slices.Clip(ask)
}
