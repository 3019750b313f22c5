package tools

import (
	"encoding/json"
	"fmt"
	"sync"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/harness/schema"
)

// Tool is one row of the table.
type Tool struct {
	Name        string
	Description string
	Schema      json.RawMessage
	ReadOnly    bool // repeating a call is harmless; allowed for tasks of kind inspect
	Internal    bool // for deterministic steps and verification; never offered to a model
}

// Spec is the row as a model sees it.
func (t Tool) Spec() contract.ToolSpec {
	return contract.ToolSpec{Name: t.Name, Description: t.Description, Schema: t.Schema}
}

// Compiling the schemas takes longer than a box's guest takes to start, and
// most boxes never call a tool: it waits for the first use.
var table = sync.OnceValue(func() []Tool {
	return []Tool{
		{Name: "read", ReadOnly: true,
			Description: "Read a text file of the workspace. Lines are numbered from 1; a tab follows the number.",
			Schema: obj(`"path":{"type":"string","minLength":1,"maxLength":4096,"description":"relative to the workspace's root"},
			"offset":{"type":"integer","minimum":1,"description":"first line to show"},
			"limit":{"type":"integer","minimum":1,"maximum":5000,"description":"how many lines; 2000 when left out"}`, "path")},
		{Name: "write",
			Description: "Write a whole file, making directories as needed. An existing file is replaced and keeps its mode.",
			Schema: obj(`"path":{"type":"string","minLength":1,"maxLength":4096},
			"content":{"type":"string","maxLength":1000000},
			"executable":{"type":"boolean"}`, "path", "content")},
		{Name: "edit",
			Description: "Replace text in a file. old must occur exactly once, byte for byte, unless all is true.",
			Schema: obj(`"path":{"type":"string","minLength":1,"maxLength":4096},
			"old":{"type":"string","minLength":1,"maxLength":500000},
			"new":{"type":"string","maxLength":500000},
			"all":{"type":"boolean","description":"replace every occurrence"}`, "path", "old", "new")},
		{Name: "bash",
			Description: "Run a shell command in the workspace's box. There is no network beyond what the task was granted.",
			Schema: obj(`"command":{"type":"string","minLength":1,"maxLength":65536},
			"cwd":{"type":"string","maxLength":4096,"description":"relative to the workspace's root"},
			"timeout_s":{"type":"integer","minimum":1,"maximum":600,"description":"120 when left out"}`, "command")},
		{Name: "grep", ReadOnly: true,
			Description: "Find lines that match a regular expression (RE2). Dependency and cache folders are skipped.",
			Schema: obj(`"pattern":{"type":"string","minLength":1,"maxLength":2000},
			"path":{"type":"string","maxLength":4096,"description":"file or folder to search; the whole workspace when left out"},
			"glob":{"type":"string","maxLength":1000,"description":"only files whose path or name matches, such as *.go"},
			"ignore_case":{"type":"boolean"}`, "pattern")},
		{Name: "glob", ReadOnly: true,
			Description: "List files whose path matches a pattern, such as **/*.ts. Dependency and cache folders are skipped.",
			Schema: obj(`"pattern":{"type":"string","minLength":1,"maxLength":1000},
			"path":{"type":"string","maxLength":4096,"description":"folder to start in"}`, "pattern")},
		{Name: "ls", ReadOnly: true,
			Description: "List a folder: type, size and name of each entry.",
			Schema:      obj(`"path":{"type":"string","maxLength":4096}`)},
		{Name: "git_status", ReadOnly: true,
			Description: "What this task has changed against the checkpoint it started from, one path per line.",
			Schema:      obj(`"path":{"type":"string","maxLength":4096}`)},
		{Name: "git_diff", ReadOnly: true,
			Description: "Unified diff of what this task has changed against the checkpoint it started from. New files are listed by git_status.",
			Schema:      obj(`"path":{"type":"string","maxLength":4096}`)},

		{Name: "run", Internal: true,
			Description: "Run a command without a shell.",
			Schema: obj(`"argv":{"type":"array","minItems":1,"maxItems":256,"items":{"type":"string","maxLength":65536}},
			"cwd":{"type":"string","maxLength":4096},
			"timeout_s":{"type":"integer","minimum":1,"maximum":86400}`, "argv")},
		{Name: "patch", Internal: true,
			Description: "Apply a unified diff, all of it or nothing.",
			Schema:      obj(`"diff":{"type":"string","minLength":1,"maxLength":600000}`, "diff")},
		{Name: "facts", Internal: true, ReadOnly: true,
			Description: "What the projects around the given paths are made of.",
			Schema: obj(`"paths":{"type":"array","maxItems":5000,"items":{"type":"string","maxLength":16384}},
			"base":{"type":"boolean","description":"as the commit the task started from has them"},
			"restore":{"type":"array","maxItems":5000,"items":{"type":"string","maxLength":16384},"description":"paths to put back first as the base has them"}`, "paths")},
		{Name: "check", Internal: true,
			Description: "Run one check of a verification and count its tests.",
			Schema: obj(`"argv":{"type":"array","minItems":1,"maxItems":256,"items":{"type":"string","maxLength":65536}},
			"cwd":{"type":"string","maxLength":4096},
			"timeout_s":{"type":"integer","minimum":1,"maximum":86400},
			"runner":{"type":"string","maxLength":64},
			"restore":{"type":"array","maxItems":5000,"items":{"type":"string","maxLength":16384},"description":"paths to put back first as the base has them"}`, "argv", "runner")},
		{Name: "check_theme", Internal: true, ReadOnly: true,
			Description: "Check that a file is a valid theme.",
			Schema:      obj(`"path":{"type":"string","minLength":1,"maxLength":4096}`, "path")},
	}
})

// compiled are the rows by name, with their schemas.
var compiled = sync.OnceValue(func() map[string]row {
	out := map[string]row{}
	for _, t := range table() {
		c, err := schema.Compile(t.Schema)
		if err != nil {
			panic("tools: " + t.Name + ": " + err.Error())
		}
		out[t.Name] = row{t, c}
	}
	return out
})

type row struct {
	Tool
	schema *schema.Schema
}

// Table lists the tools a task may name in tools[], in a fixed order.
func Table() []Tool {
	var out []Tool
	for _, t := range table() {
		if !t.Internal {
			out = append(out, t)
		}
	}
	return out
}

// Lookup returns a tool by name, internal ones included.
func Lookup(name string) (Tool, bool) {
	r, ok := compiled()[name]
	return r.Tool, ok
}

// CheckArgs checks a call's arguments against the tool's schema.
func CheckArgs(name string, args json.RawMessage) error {
	r, ok := compiled()[name]
	if !ok {
		return fmt.Errorf("there is no tool %q", name)
	}
	return r.schema.Validate(args)
}

func obj(properties string, required ...string) json.RawMessage {
	req, _ := json.Marshal(required) // strings always encode
	if len(required) == 0 {
		req = []byte("[]")
	}
	return json.RawMessage(fmt.Sprintf(`{"type":"object","additionalProperties":false,"required":%s,"properties":{%s}}`, req, properties))
}
