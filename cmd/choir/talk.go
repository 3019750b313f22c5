package main

import (
	"bytes"
	"context"
	"encoding/json"
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

// talk is what the verbs that talk to a running control plane share.
type talk struct {
	json     bool
	computer string
	data     string
}

// flags adds the flags of every such verb.
func (t *talk) flags(cmd *cobra.Command) *cobra.Command {
	cmd.Flags().BoolVar(&t.json, "json", false, "print JSON")
	cmd.Flags().StringVar(&t.computer, "computer", "", "computer id, where there are several")
	cmd.Flags().StringVar(&t.data, "data", "", "data directory of the running instance")
	return cmd
}

// dial makes a client for CHOIR_URL and CHOIR_TOKEN, else for the instance on
// the data directory.
func (t *talk) dial() (*client.Client, error) {
	data := t.data
	if data == "" && os.Getenv("CHOIR_URL") == "" {
		c, err := config.Load(config.Sources{Environ: os.Environ()})
		if err != nil {
			return nil, err
		}
		data = c.Server.Data
	}
	return client.Discover(os.Getenv, data, t.computer)
}

// verb makes a command whose body gets a client.
func verb(use, short string, args cobra.PositionalArgs, body func(ctx context.Context, t *talk, c *client.Client, cmd *cobra.Command, args []string) error) *cobra.Command {
	t := &talk{}
	cmd := &cobra.Command{Use: use, Short: short, Args: args}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		c, err := t.dial()
		if err != nil {
			return err
		}
		defer c.Close()
		return body(cmd.Context(), t, c, cmd, args)
	}
	return t.flags(cmd)
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
	_, err := io.WriteString(to, plain(b.String()))
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
