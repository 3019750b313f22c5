package commands

import (
	"cmp"
	"context"
	"io"
	"path"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"choir.dev/choiros/internal/guest"
	"choir.dev/choiros/internal/view"
)

// runIn runs a command in a box, on a terminal of its own if requested, and passes on the
// signals and sizes that arrive meanwhile.
func runIn(ctx context.Context, g *guest.Client, r view.ExecRequest, eio view.ExecIO, brought <-chan view.CommandSignal) (guest.Exit, error) {
	dir := path.Join("/computer", r.Cwd)
	var ended sync.WaitGroup
	over := make(chan struct{})
	defer ended.Wait()
	defer close(over)
	each := func(do func(view.CommandSignal)) {
		ended.Go(func() {
			for {
				select {
				case s := <-brought:
					do(s)
				case <-over:
					return
				}
			}
		})
	}
	if r.Terminal == nil {
		signals := make(chan syscall.Signal)
		each(func(s view.CommandSignal) {
			if s.Signal == "" {
				return // it is a size, and there is no terminal
			}
			select {
			case signals <- unix.SignalNum("SIG" + s.Signal):
			case <-over:
			}
		})
		return g.Exec(ctx, guest.ExecRequest{Argv: r.Argv, Dir: dir, Stdin: eio.Stdin != nil},
			guest.Streams{Stdin: eio.Stdin, Stdout: eio.Stdout, Stderr: eio.Stderr, Signals: signals})
	}
	env := map[string]string{}
	if r.Terminal.Type != "" {
		env["TERM"] = r.Terminal.Type
	}
	p, err := g.PTY(ctx, guest.PTYRequest{Argv: r.Argv, Dir: dir, Env: env, Rows: uint16(r.Terminal.Rows), Cols: uint16(r.Terminal.Cols)})
	if err != nil {
		return guest.Exit{}, err
	}
	defer p.Close() // hangs up what is left on the terminal
	each(func(s view.CommandSignal) {
		// If it fails, the terminal is closed, which its reader notices.
		if s.Rows > 0 {
			_ = p.Resize(uint16(s.Rows), uint16(s.Cols))
		}
		if s.Signal != "" {
			_ = p.Signal(unix.SignalNum("SIG" + s.Signal))
		}
	})
	if eio.Stdin != nil {
		// It is not waited for: the read may block for as long as the client likes.
		go func() { _, _ = io.Copy(p, eio.Stdin) }()
	}
	shown := eio.Stdout
	if shown == nil {
		shown = io.Discard
	}
	if _, err := io.Copy(shown, p); err != nil {
		return guest.Exit{}, cmp.Or(ctx.Err(), err)
	}
	return p.Wait()
}
