package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"choir.dev/choiros/internal/client"
	"choir.dev/choiros/internal/config"
)

// talk is what a verb was called with, and how it answers.
type talk struct {
	cmd      *cobra.Command
	json     bool
	computer string
	data     string
}

// given says whether a flag was given.
func (t *talk) given(flag string) bool { return t.cmd.Flags().Changed(flag) }

// directory is the data directory of the running instance.
func (t *talk) directory() (string, error) {
	if t.data != "" {
		return config.Path(os.Environ(), t.data)
	}
	c, err := config.Load(config.Sources{Environ: os.Environ()})
	return c.Server.Data, err
}

// sources are where the configuration comes from, with the flags that were given.
func (t *talk) sources(file string, flags map[string]string) config.Sources {
	src := config.Sources{File: file, Environ: os.Environ(), Flags: map[string]any{}}
	if t.given("data") {
		src.Flags["server.data"] = t.data
	}
	for key, value := range flags {
		if t.given(key[strings.LastIndex(key, ".")+1:]) {
			src.Flags[key] = value
		}
	}
	return src
}

// dial makes a client for CHOIR_URL and CHOIR_TOKEN, else for the instance on
// the data directory.
func (t *talk) dial() (*client.Client, error) {
	data := ""
	if t.data != "" || os.Getenv("CHOIR_URL") == "" {
		var err error
		if data, err = t.directory(); err != nil {
			return nil, err
		}
	}
	return client.Discover(os.Getenv, data, t.computer)
}

// show prints v as JSON, or calls text.
func (t *talk) show(v any, text func(w io.Writer)) error {
	if t.json {
		return printJSON(v)
	}
	return table(os.Stdout, text)
}

// table prints what text writes, columns aligned and nothing in it that a
// terminal obeys, whichever verb wrote it.
func table(to io.Writer, text func(w io.Writer)) error {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 4, 2, ' ', 0)
	text(w)
	if err := w.Flush(); err != nil {
		return err
	}
	shown := plain(b.String())
	if f, ok := to.(*os.File); ok && colours(f) {
		shown = marked.Replace(shown)
	}
	_, err := io.WriteString(to, shown)
	return err
}

func printJSON(v any) error {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(v); err != nil {
		return err
	}
	_, err := os.Stdout.Write(plainJSON(b.Bytes()))
	return err
}

// list turns a nil slice into an empty one, so that JSON shows [].
func list[T any](s []T) []T {
	if s == nil {
		return []T{}
	}
	return s
}

func short(id string) string {
	if len(id) > 10 && !strings.Contains(id, "-") {
		return id[:10]
	}
	return id
}

func ago(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return t.Local().Format("2006-01-02 15:04:05")
}

// maxCell is how many characters one cell shows.
const maxCell = 2000

// row writes one line of cells. What a cell holds ends neither it nor the line.
func row(w io.Writer, cells ...any) {
	for i, c := range cells {
		if i > 0 {
			fmt.Fprint(w, "\t")
		}
		fmt.Fprint(w, oneLine(fmt.Sprint(c), maxCell))
	}
	fmt.Fprintln(w)
}

// every goes through a list page by page until there are limit items; 0 is all.
func every[T any](ctx context.Context, limit int, sequence func(T) uint64, page func(ctx context.Context, before uint64, n int) ([]T, bool, error)) ([]T, error) {
	if limit < 0 {
		return nil, usageError{errors.New("--limit is a number of at least 0, where 0 is all")}
	}
	return client.Every(ctx, limit, sequence, page)
}
