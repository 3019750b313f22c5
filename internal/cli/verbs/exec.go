package verbs

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/spf13/pflag"
	"golang.org/x/sys/unix"
	"golang.org/x/term"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/cli"
	"choir.dev/choiros/internal/cli/terminal"
	"choir.dev/choiros/internal/client"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/view"
)

// execFailed is the exit code of exec when choir failed and not the command. The command's
// own code may be the same, so a line on standard error says that it is choir's.
const execFailed cli.Exit = 125

// Exec is choir exec.
func Exec() cli.Verb {
	var cwd string
	var tty bool
	return cli.Verb{
		Use: "exec [-t] -- CMD…", Short: "Run a command of your own on the live files, checkpoints around it", Args: cli.Between(1, -1), JSON: view.Exit{},
		Long: `Standard input is passed on unless it is a terminal; with -t the command has a terminal of
its own, of the size of yours. Ctrl-C, and what tells choir to terminate or that its terminal
is closed, is brought to the command; the third time ends it. It ends with the command's exit
code, 127 if there is no such command, 126 if it can't be run, 128 + n if signal n ended it, and
125 if choir failed, which a line on standard error that begins with "choir:" says.`,
		Examples: []string{"choir exec -- make test", "choir exec --cwd workspace/project -- sh -c 'git log | head'", "choir exec -t -- vi workspace/notes.md", "tar c . | choir exec --cwd workspace -- tar x"},
		Flags: func(f *pflag.FlagSet) {
			f.StringVar(&cwd, "cwd", "", "`PATH` of the folder to run in, relative to the computer's root")
			f.BoolVarP(&tty, "tty", "t", false, "give the command a terminal")
			f.SetInterspersed(false) // what follows the command belongs to it
		},
		Failure: execFailed,
		Asks: func(ctx context.Context, t *cli.Call, c *client.Client, args []string) error {
			r := view.ExecRequest{ID: contract.NewID(), Argv: args, Cwd: cwd}
			if !tty {
				return execute(ctx, t, c, r)
			}
			if t.JSON {
				return cli.Usage(errors.New("give --json or -t, not both: a terminal has no place for JSON"))
			}
			return onTerminal(ctx, t, c, r)
		},
	}
}

// execute runs a command that has no terminal.
func execute(ctx context.Context, t *cli.Call, c *client.Client, r view.ExecRequest) error {
	stdout, outDone := terminal.OnScreen(os.Stdout)
	stderr, errDone := terminal.OnScreen(os.Stderr)
	eio := view.ExecIO{Stdout: stdout, Stderr: stderr}
	if t.JSON {
		eio.Stdout = stderr
	}
	if st, err := os.Stdin.Stat(); err == nil && st.Mode()&os.ModeCharDevice == 0 {
		eio.Stdin = os.Stdin
	}
	b := newSignalForwarder(ctx, c, r.ID)
	defer b.end()
	eio.Started = b.started
	exit, err := c.Exec(ctx, r, eio)
	if err = errors.Join(err, outDone(), errDone()); err != nil {
		return err
	}
	if t.JSON {
		if err := terminal.PrintJSON(exit); err != nil {
			return err
		}
	} else {
		printUnprotected(exit)
	}
	return ended(exit)
}

// ended turns a command's end into the verb's.
func ended(how view.Exit) error {
	switch {
	case how.Code == 126 || how.Code == 127:
		if how.Reason != "" {
			fmt.Fprintf(os.Stderr, "choir: %s\n", terminal.OneLine(how.Reason, 300))
		}
	case how.Reason != "":
		fmt.Fprintf(os.Stderr, "choir: the command was ended: %s\n", terminal.OneLine(how.Reason, 300))
	}
	if how.Code != 0 {
		return cli.Exit(how.Code)
	}
	return nil
}

// onTerminal runs a command on a terminal in the computer, which this terminal shows.
func onTerminal(ctx context.Context, t *cli.Call, c *client.Client, r view.ExecRequest) (err error) {
	in, out := int(os.Stdin.Fd()), int(os.Stdout.Fd())
	if !term.IsTerminal(in) || !term.IsTerminal(out) {
		return cli.Usage(errors.New("-t wants a terminal for standard input and output; leave it away in a pipe"))
	}
	size := func() view.CommandSignal {
		cols, rows, err := term.GetSize(out)
		if err != nil || cols <= 0 || rows <= 0 {
			cols, rows = 80, 24
		}
		return view.CommandSignal{Rows: rows, Cols: cols}
	}
	at := size()
	r.Terminal = &view.Terminal{Rows: at.Rows, Cols: at.Cols, Type: os.Getenv("TERM")}
	was, err := term.MakeRaw(in)
	if err != nil {
		return fault.Wrap("exec", err)
	}
	defer func() { err = errors.Join(err, term.Restore(in, was)) }()
	b := newSignalForwarder(ctx, c, r.ID)
	defer b.end()
	resized := make(chan os.Signal, 1)
	signal.Notify(resized, syscall.SIGWINCH)
	var sizes sync.WaitGroup
	sizes.Go(func() {
		for range resized {
			b.enqueue(size())
		}
	})
	defer func() { signal.Stop(resized); close(resized); sizes.Wait() }()
	shown := &terminal.Drawing{To: os.Stdout}
	exit, err := c.Exec(ctx, r, view.ExecIO{Stdin: os.Stdin, Stdout: shown, Stderr: shown, Started: b.started})
	if err != nil {
		return err
	}
	if err := term.Restore(in, was); err != nil {
		return fault.Wrap("exec", err)
	}
	printUnprotected(exit)
	return ended(exit)
}

// printUnprotected says which of a command's changes no checkpoint holds.
func printUnprotected(exit view.Exit) {
	printUnkept(os.Stderr, exit.Unkept)
	if exit.NoCheckpoint != "" {
		fmt.Fprintf(os.Stderr, "choir: %s\n", terminal.OneLine(exit.NoCheckpoint, 300))
	}
}

// signalForwarder sends the signals that this process gets to the command that runs in the
// computer, one after the other.
type signalForwarder struct {
	queue chan view.CommandSignal
	began atomic.Bool
	told  atomic.Int32 // how often the person asked it to end
	end   func()
}

// endsAt is after how many Ctrl-C the command is killed.
const endsAt = 3

func newSignalForwarder(ctx context.Context, c *client.Client, id string) *signalForwarder {
	b := &signalForwarder{queue: make(chan view.CommandSignal, 16)}
	going, cancel := context.WithCancel(context.WithoutCancel(ctx))
	var done sync.WaitGroup
	done.Go(func() {
		for {
			select {
			case <-going.Done():
				return
			case s := <-b.queue:
				within, stop := context.WithTimeout(going, 10*time.Second)
				// If it fails, the command has ended or the control plane is gone, which
				// the command's own stream reports.
				_ = c.SignalCommand(within, id, s)
				stop()
			}
		}
	})
	release := cli.TakeSignals(ctx, func(sig syscall.Signal) bool {
		if !b.began.Load() || sig != syscall.SIGQUIT && b.told.Add(1) >= endsAt {
			return false
		}
		b.enqueue(view.CommandSignal{Signal: unix.SignalName(sig)[len("SIG"):]})
		return true
	})
	b.end = func() { release(); cancel(); done.Wait() }
	return b
}

func (b *signalForwarder) started(string, uint64) { b.began.Store(true) }

// enqueue queues a signal once the command has started. If the queue is full it is dropped,
// as the kernel drops a signal that is already pending.
func (b *signalForwarder) enqueue(s view.CommandSignal) {
	if !b.began.Load() {
		return
	}
	select {
	case b.queue <- s:
	default:
	}
}
