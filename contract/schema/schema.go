// Package schema holds the published JSON Schemas (draft 2020-12) of the
// contract, generated from its Go types. Names are paths such as event.json,
// director-task.json and data/run.started.json.
package schema

import (
	"embed"
	"io/fs"
	"sort"
)

//go:embed *.json data/*.json
var files embed.FS

// BaseURI is what every schema's $id begins with; the rest is its name.
const BaseURI = "https://choir.dev/schema/v1/"

// Get returns a schema by name, or fs.ErrNotExist.
func Get(name string) ([]byte, error) { return files.ReadFile(name) }

// Names lists every schema, sorted.
func Names() []string {
	var out []string
	for _, pattern := range []string{"*.json", "data/*.json"} {
		names, err := fs.Glob(files, pattern)
		if err != nil {
			panic("schema: " + err.Error()) // only possible with a malformed pattern
		}
		out = append(out, names...)
	}
	sort.Strings(out)
	return out
}
