package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"time"

	"github.com/spf13/pflag"
	"golang.org/x/sys/unix"

	"choir.dev/choiros/internal/cli"
	"choir.dev/choiros/internal/cli/terminal"
	"choir.dev/choiros/internal/client"
	"choir.dev/choiros/internal/config"
	"choir.dev/choiros/internal/defence"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/process"
	"choir.dev/choiros/internal/view"
)

// statusReport is what status --json prints.
type statusReport struct {
	URL     string `json:"url"`
	Version string `json:"version"`
	PID     int    `json:"pid,omitempty"`
	Data    string `json:"data,omitempty"`
	view.Status
}

func statusVerb() cli.Verb {
	return cli.Verb{
		Use: "status", Short: "Say whether a control plane runs, where, and how its parts and computers are", Args: cli.Exactly(0), JSON: statusReport{},
		Long: `Of each computer it says what its parts do, which runs have not ended, and what they wait for:
a person, a model, or their turn. It wakes none.
It ends with 3 when none runs, and with 1 when something needs attention: a part of the machine or of
a computer failed or is started again, or a computer does not wake.`,
		Examples: []string{"choir status", "choir status --json --data ~/choir-data"},
		Asks: func(ctx context.Context, t *cli.Call, c *client.Client, _ []string) error {
			health, err := c.Health(ctx)
			if err != nil {
				return err
			}
			s := statusReport{URL: c.Base(), Version: health.Version}
			// Of a control plane elsewhere only the address is known.
			if data, err := t.Directory(); err != nil {
				return err
			} else if r, err := client.ReadRuntime(data); err == nil && r.URL == c.Base() {
				s.PID, s.Data = r.PID, data
			}
			if s.Status, err = c.Status(ctx); err != nil {
				return err
			}
			s.Computers = cli.List(s.Computers)
			if err := t.Show(s, func(w io.Writer) { showStatus(w, s) }); err != nil {
				return err
			}
			if !s.Well {
				return cli.ExitFailed
			}
			return nil
		},
	}
}

// showStatus writes a status for people. Parts that simply run are only counted.
func showStatus(w io.Writer, s statusReport) {
	terminal.Row(w, "up", s.URL)
	terminal.Row(w, "version", s.Version)
	if s.PID > 0 {
		terminal.Row(w, "process", s.PID)
		terminal.Row(w, "data", s.Data)
	}
	if len(s.Machine) > 0 {
		terminal.Row(w, "machine", counted(s.Machine))
		showParts(w, s.Machine)
	}
	for _, c := range s.Computers {
		said := counted(c.Parts)
		if c.Trouble != nil {
			said = terminal.OneLine(c.Trouble.Reason, 300)
		}
		terminal.Row(w, "computer", c.ID, terminal.OneLine(c.Name, 80), string(c.State), said)
		showParts(w, c.Parts)
		for _, r := range c.Runs {
			said := string(r.Status)
			if r.For != "" {
				said += ", waits for " + waitedFor(r.For) + ": " + terminal.OneLine(r.Reason, 200)
			}
			terminal.Row(w, "", "run", r.ID, said)
		}
	}
}

// waitedFor is what a run waits for, in words.
func waitedFor(what string) string {
	switch what {
	case "person":
		return "a person"
	case "model":
		return "its model"
	}
	return "its turn"
}

// counted says how many parts there are, and how many of them are not well.
func counted(parts []view.Part) string {
	ill := 0
	for _, p := range parts {
		if !p.Well() {
			ill++
		}
	}
	switch {
	case len(parts) == 0:
		return ""
	case ill == 0:
		return fmt.Sprintf("%d parts, all well", len(parts))
	}
	return fmt.Sprintf("%d of %d parts are not well", ill, len(parts))
}

// showParts lists the parts about which there is something to say.
func showParts(w io.Writer, parts []view.Part) {
	for _, p := range parts {
		if p.Well() && p.Restarts == 0 && p.Reason == "" {
			continue
		}
		said := string(p.State)
		if p.Restarts > 0 {
			said += fmt.Sprintf(", restarted %d times", p.Restarts)
		}
		if p.Reason != "" {
			said += ": " + terminal.OneLine(p.Reason, 300)
		}
		if p.Hint != "" {
			said += " " + terminal.OneLine(p.Hint, 300)
		}
		terminal.Row(w, "", p.Name, said)
	}
}

// stopDone is what stop --json prints.
type stopDone struct {
	PID  int    `json:"pid"`
	Data string `json:"data"`
}

func stopVerb() cli.Verb {
	var timeout time.Duration
	return cli.Verb{
		Use: "stop", Short: "Stop the control plane of this machine, and wait until it has ended", Args: cli.Exactly(0), JSON: stopDone{}, Data: true,
		Long: `What is under way is recorded and goes on with the next choir up. A command that an
agent runs just then is ended and not repeated: the agent is told that its outcome is unknown,
and looks and goes on, or its task fails (as it does in a rehearsal); other tasks begin anew.
It stops what has the data directory. Where CHOIR_URL names another control plane it stops
none, for one elsewhere is stopped there; --data names the one on this machine that is meant.`,
		Examples: []string{"choir stop", "choir stop --data ~/choir-data --timeout 5m"},
		Flags: func(f *pflag.FlagSet) {
			f.DurationVar(&timeout, "timeout", 2*time.Minute, "how long to wait; it is not killed then")
		},
		Does: func(ctx context.Context, t *cli.Call, _ []string) error {
			if timeout <= 0 {
				return cli.Usage(errors.New("--timeout is a time of more than 0, such as 5m"))
			}
			data, err := t.Directory()
			if err != nil {
				return err
			}
			if t.Data == "" {
				if err := meant(data, os.Getenv("CHOIR_URL")); err != nil {
					return err
				}
			}
			pid, err := stop(ctx, data, timeout)
			if err != nil {
				return err
			}
			return t.Show(stopDone{pid, data}, func(w io.Writer) { terminal.Row(w, "stopped", pid, data) })
		},
	}
}

// meant refuses to stop the control plane that has a data directory if CHOIR_URL names another one.
func meant(data, address string) error {
	const op = "stop"
	if address == "" {
		return nil
	}
	r, err := client.ReadRuntime(data)
	if err != nil {
		return err
	}
	if client.SamePlace(address, r.URL) {
		return nil
	}
	return fault.New(op, fault.Invalid, "Stop that one on its own machine; to stop the one here, unset CHOIR_URL or name its directory with --data.",
		fmt.Errorf("CHOIR_URL names %s, and the control plane of %s is at %s", terminal.OneLine(address, 200), data, r.URL))
}

// stop asks the process that has a data directory to end, and waits for that. A pidfd
// identifies the process meanwhile, for its number may be reused.
func stop(ctx context.Context, data string, timeout time.Duration) (pid int, err error) {
	const op = "stop"
	r, err := client.ReadRuntime(data)
	if err != nil {
		return 0, err
	}
	fd, err := unix.PidfdOpen(r.PID, 0)
	if err != nil {
		return 0, fault.Wrap(op, err)
	}
	defer unix.Close(fd)
	if process.Living(r.Process) != r.PID && !defence.Off(defence.RuntimeProcess) {
		return 0, fault.New(op, fault.Unreachable, "", fmt.Errorf("the control plane of %s has ended", data))
	}
	if err := unix.PidfdSendSignal(fd, unix.SIGTERM, nil, 0); err != nil {
		return 0, fault.New(op, fault.Denied, "Run this as the user who started choir up.", err)
	}
	for over := time.Now().Add(timeout); ; {
		left := time.Until(over)
		if left <= 0 {
			return 0, fault.New(op, fault.Timeout, "Look at what it says with choir logs, and wait longer with --timeout.", fmt.Errorf("process %d still ends", r.PID))
		}
		if ctx.Err() != nil {
			return 0, context.Cause(ctx)
		}
		// The poll is short, so that a signal to this process is noticed.
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, int(min(left, 100*time.Millisecond).Milliseconds())+1)
		switch {
		case err != nil && !errors.Is(err, unix.EINTR):
			return 0, fault.Wrap(op, err)
		case n > 0:
			return r.PID, nil
		}
	}
}

func openVerb() cli.Verb {
	return cli.Verb{
		Use: "open", Short: "Open the console in a browser, signed in, or print the link where there is none", Args: cli.Exactly(0), JSON: view.Link{},
		Long: `The link signs in once. With --json, or without a display, it is printed and no browser is
opened.`,
		Examples: []string{"choir open", "choir open --json"},
		Asks: func(ctx context.Context, t *cli.Call, c *client.Client, _ []string) error {
			link, err := c.Link(ctx)
			if err != nil {
				return err
			}
			if t.JSON || !hasDisplay() {
				return t.Show(link, func(w io.Writer) { fmt.Fprintln(w, link.URL) })
			}
			data, err := t.Directory()
			if err != nil {
				return err
			}
			done := openBrowser(data, link.URL, slog.New(slog.NewTextHandler(os.Stderr, nil)))
			defer done()
			select { // the browser has to read the file with the link before it is removed
			case <-ctx.Done():
				return context.Cause(ctx)
			case <-time.After(openFor):
				return nil
			}
		},
	}
}

// openFor is how long the file that leads a browser to the console stays.
const openFor = 5 * time.Second

func configVerb() cli.Verb {
	var listen, file string
	show := cli.Verb{
		Use: "show", Short: "Show every key's value and where it is from", Args: cli.Exactly(0), JSON: []config.Setting{}, Data: true,
		Long:     "It reads what choir up would read now, not what one that runs has read: restart choir\n(choir stop, choir up) for a change to count.",
		Examples: []string{"choir config show", "choir config show --config ./config.toml --json"},
		Flags: func(f *pflag.FlagSet) {
			f.StringVar(&listen, "listen", "", "`ADDR:PORT` to listen on")
			f.StringVar(&file, "config", "", "the configuration, a `FILE`")
		},
		Does: func(_ context.Context, t *cli.Call, _ []string) error {
			settings, err := config.Settings(t.Sources(file, map[string]string{"server.listen": listen}))
			if err != nil {
				return err
			}
			return t.Show(settings, func(w io.Writer) {
				for _, s := range settings {
					terminal.Row(w, s.Key, s.Value, s.Source)
				}
			})
		},
	}
	return cli.Verb{Use: "config", Short: "Show the configuration", Verbs: []cli.Verb{show}}
}
