package main

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/pflag"

	"choir.dev/choiros/eval"
	"choir.dev/choiros/internal/cli"
	"choir.dev/choiros/internal/config"
	"choir.dev/choiros/internal/fault"
)

// playing is what --model begins with when cassettes are played: cassette, or cassette/NAME.
const playing = "cassette"

// evalVerb tries tasks with a model, on a control plane of its own.
func evalVerb() cli.Verb {
	var o eval.Options
	var only []string
	var results, against string
	return cli.Verb{
		Use: "eval DIR", Short: "Try a folder of tasks with a model, and say which it solves at what cost", Args: cli.Exactly(1), JSON: eval.Report{},
		Long: `Each folder in DIR with a task.toml is a task: a repository, a prompt and a check that the model
never sees. They are tried on a control plane of its own, each in a computer of its own, all of
which is removed at the end; what it asks a person is denied. With --model cassette/NAME the
answers in each task's NAME.jsonl are played in place of a model. Keys are taken from the
environment. It ends with 0 when every task ended as it is to end.`,
		Examples: []string{"choir eval ./tasks --model cassette/written", "choir eval ./tasks --model smart --only 'go-*' --results after.json --against before.json", "choir eval ./tasks --model smart --record ./cassettes"},
		Flags: func(f *pflag.FlagSet) {
			f.StringVar(&o.Model, "model", "", "provider/`MODEL`, an alias, or cassette/NAME; default: the configured one")
			f.StringSliceVar(&only, "only", nil, "only tasks whose names fit the `PATTERN`; may be several")
			f.IntVar(&o.Parallel, "parallel", 2, "how many tasks at a time")
			f.StringVar(&o.Record, "record", "", "a `DIR` into which a cassette of each task's answers is written")
			f.StringVar(&results, "results", "", "a `FILE` for the results as JSON")
			f.StringVar(&against, "against", "", "a `FILE` of --results from before, to compare with")
			f.StringVar(&o.Scratch, "scratch", "", "where to write scratch data, a `DIR`")
		},
		Does: func(ctx context.Context, t *cli.Call, args []string) error {
			tasks, err := eval.Load(args[0], only...)
			if err != nil {
				return err
			}
			if o.Parallel < 1 || o.Parallel > 64 {
				return cli.Usage(errors.New("--parallel is a number from 1 to 64"))
			}
			var before *eval.Report
			if against != "" {
				if before, err = readReport(against); err != nil {
					return err
				}
			}
			if name, ok := strings.CutPrefix(o.Model+"/", playing+"/"); ok {
				o.Model, o.Cassette = "", strings.TrimSuffix(name, "/")
				if o.Cassette == "" {
					o.Cassette = playing
				}
				if o.Cassette != filepath.Base(o.Cassette) {
					return cli.Usage(errors.New("the NAME of a cassette is that of a file beside task.toml, without .jsonl"))
				}
			}
			if o.Cassette != "" && o.Record != "" {
				return cli.Usage(errors.New("give --record with a model: a cassette is recorded already"))
			}
			return tryTasks(ctx, t, tasks, o, results, before)
		},
	}
}

func tryTasks(ctx context.Context, t *cli.Call, tasks []eval.Task, o eval.Options, results string, before *eval.Report) error {
	cfg, err := config.Load(config.Sources{Environ: os.Environ()})
	if err != nil {
		return err
	}
	if o.Binary, err = os.Executable(); err != nil {
		return err
	}
	o.Version, o.Progress = version, os.Stderr
	o.Modules = []string{filepath.Join(cfg.Server.Data, "cache", "node_modules"), filepath.Join(filepath.Dir(o.Binary), "cache", "node_modules")}
	report, err := eval.Run(ctx, tasks, o)
	if err != nil {
		return err
	}
	if before != nil {
		report.Differs = report.Compare(*before)
	}
	if results != "" {
		if err := report.Write(results); err != nil {
			return err
		}
	}
	if err := t.Show(report, func(w io.Writer) { report.Table(w) }); err != nil {
		return err
	}
	if !report.Good() {
		return cli.ExitFailed
	}
	return nil
}

// readReport reads a file of --results.
func readReport(path string) (*eval.Report, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var r eval.Report
	if err := json.Unmarshal(b, &r); err != nil {
		return nil, fault.New("eval", fault.Invalid, "Name a file that --results wrote.", err)
	}
	return &r, nil
}
