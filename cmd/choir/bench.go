package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/spf13/pflag"

	"choir.dev/choiros/bench"
	"choir.dev/choiros/bench/report"
	"choir.dev/choiros/internal/cli"
	"choir.dev/choiros/internal/config"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/guest/image"
)

// benchVerb measures this binary on this machine. It needs no running control
// plane: what it needs it starts itself, on scratch data.
func benchVerb() cli.Verb {
	var dir, file string
	return cli.Verb{
		Use: "bench [ROW…]", Short: "Measure this binary on this machine, against the raw tools", Args: cli.Between(0, -1), JSON: report.Report{},
		Long:     benchRows(),
		Examples: []string{"choir bench", "choir bench prompt exec --json"},
		Flags: func(f *pflag.FlagSet) {
			f.StringVar(&dir, "dir", "", "where to write scratch data, a `DIR`; default: beside the default data directory, on the same disk")
			f.StringVar(&file, "write", "", "a `FILE` between whose marks the table and the curves are put too")
		},
		Does: func(ctx context.Context, t *cli.Call, names []string) error {
			if file != "" && len(names) > 0 {
				return fault.New("bench", fault.Invalid, "Leave the names away, or --write.", errors.New("a page tells of a whole run"))
			}
			cfg, err := config.Load(config.Sources{Environ: os.Environ()})
			if err != nil {
				return err
			}
			if dir == "" {
				dir = filepath.Dir(cfg.Server.Data)
			}
			if err := os.MkdirAll(dir, 0o700); err != nil {
				return fault.New("bench", fault.Invalid, "Choose another place with --dir.", err)
			}
			if dir, err = filepath.Abs(dir); err != nil {
				return err
			}
			self, err := os.Executable()
			if err != nil {
				return err
			}
			scratch, err := os.MkdirTemp(dir, "choir-bench-guest-")
			if err != nil {
				return fault.New("bench", fault.Invalid, "Choose another place with --dir.", err)
			}
			defer os.RemoveAll(scratch)
			guest, err := image.Path(scratch)
			if err != nil {
				return err
			}
			report, err := bench.Run(ctx, bench.Options{Binary: self, Version: version, Guest: guest, Dir: dir, Progress: os.Stderr,
				Modules: []string{filepath.Join(cfg.Server.Data, "cache", "node_modules"), filepath.Join(filepath.Dir(self), "cache", "node_modules")},
			}, names...)
			if err != nil {
				return err
			}
			if file != "" {
				if err := report.WritePage(file); err != nil {
					return err
				}
			}
			if err := t.Show(report, func(w io.Writer) { fmt.Fprint(w, report.Markdown()) }); err != nil {
				return err
			}
			if report.Failed() {
				return cli.ExitFailed
			}
			return nil
		},
	}
}

// benchRows says what can be measured.
func benchRows() string {
	text := "ROW is one or more of:\n"
	for _, r := range bench.Rows() {
		text += fmt.Sprintf("\n  %-12s %s", r.Name, r.About)
	}
	return text
}

// benchNames are the names of what can be measured.
func benchNames() (out []cli.Name) {
	for _, r := range bench.Rows() {
		out = append(out, cli.Name{Word: r.Name, About: r.About})
	}
	return out
}
