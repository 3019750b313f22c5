package main

import (
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
	w := tabwriter.NewWriter(os.Stdout, 0, 4, 2, ' ', 0)
	text(w)
	return w.Flush()
}

func printJSON(v any) error {
	enc := json.NewEncoder(os.Stdout)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
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

// oneLine makes untrusted text safe for a terminal: no control characters, one
// line, bounded.
func oneLine(s string, n int) string {
	s = strings.Map(func(r rune) rune {
		if r < 0x20 || (r >= 0x7f && r < 0xa0) {
			return ' '
		}
		return r
	}, s)
	if len([]rune(s)) > n {
		s = string([]rune(s)[:n-1]) + "…"
	}
	return s
}

// plain is oneLine that keeps lines.
func plain(s string) string {
	return strings.Map(func(r rune) rune {
		if (r < 0x20 && r != '\n' && r != '\t') || (r >= 0x7f && r < 0xa0) {
			return -1
		}
		return r
	}, s)
}

func row(w io.Writer, cells ...any) {
	for i, c := range cells {
		if i > 0 {
			fmt.Fprint(w, "\t")
		}
		fmt.Fprint(w, c)
	}
	fmt.Fprintln(w)
}
