package cli

import (
	"context"
	"errors"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"choir.dev/choiros/internal/cli/terminal"
	"choir.dev/choiros/internal/client"
	"choir.dev/choiros/internal/config"
)

// Call is what a verb was called with, and how it answers.
type Call struct {
	cmd      *cobra.Command
	JSON     bool
	computer string
	Data     string
}

// given says whether a flag was given.
func (t *Call) given(flag string) bool { return t.cmd.Flags().Changed(flag) }

// Directory is the data directory of the running instance.
func (t *Call) Directory() (string, error) {
	if t.Data != "" {
		return config.Path(os.Environ(), t.Data)
	}
	c, err := config.Load(config.Sources{Environ: os.Environ()})
	return c.Server.Data, err
}

// Sources are the configuration's sources, with the flags that were given.
func (t *Call) Sources(file string, flags map[string]string) config.Sources {
	src := config.Sources{File: file, Environ: os.Environ(), Flags: map[string]any{}}
	if t.given("data") {
		src.Flags["server.data"] = t.Data
	}
	for key, value := range flags {
		if t.given(key[strings.LastIndex(key, ".")+1:]) {
			src.Flags[key] = value
		}
	}
	return src
}

// dial makes a client for CHOIR_URL and CHOIR_TOKEN, and without them for the instance on
// the data directory.
func (t *Call) dial() (*client.Client, error) {
	data := ""
	if t.Data != "" || os.Getenv("CHOIR_URL") == "" {
		var err error
		if data, err = t.Directory(); err != nil {
			return nil, err
		}
	}
	return client.Discover(os.Getenv, data, t.computer)
}

// Show prints v as JSON, or calls text.
func (t *Call) Show(v any, text func(w io.Writer)) error {
	if t.JSON {
		return terminal.PrintJSON(v)
	}
	return terminal.Table(os.Stdout, text)
}

// List turns a nil slice into an empty one, so that JSON shows [].
func List[T any](s []T) []T {
	if s == nil {
		return []T{}
	}
	return s
}

// Every goes through a list page by page until there are limit items; 0 is all.
func Every[T any](ctx context.Context, limit int, sequence func(T) uint64, page func(ctx context.Context, before uint64, n int) ([]T, bool, error)) ([]T, error) {
	if limit < 0 {
		return nil, Usage(errors.New("--limit is a number of at least 0, where 0 is all"))
	}
	return client.Every(ctx, limit, sequence, page)
}
