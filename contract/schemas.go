package contract

import (
	"embed"
	"io/fs"
)

//go:embed schema
var schemaFiles embed.FS

// Schemas holds the published JSON Schemas: event.json, director-task.json, …
// and data/{event type}.json.
func Schemas() fs.FS {
	sub, err := fs.Sub(schemaFiles, "schema")
	if err != nil {
		panic("contract: " + err.Error()) // the name is a constant
	}
	return sub
}
