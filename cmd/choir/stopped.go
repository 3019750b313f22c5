package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"choir.dev/choiros/console"
	"choir.dev/choiros/internal/cli"
	"choir.dev/choiros/internal/client"
	"choir.dev/choiros/internal/config"
	"choir.dev/choiros/internal/control/stopped"
	"choir.dev/choiros/internal/datadir"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/lazy"
	"choir.dev/choiros/internal/process"
	"choir.dev/choiros/internal/view"
)

// stored is an error of opening what the data directory holds. It keeps the control plane
// from opening, but choir stays up and says so at the console's address.
type stored struct{ error }

func (s stored) Unwrap() error { return s.error }

// ofStored marks an error of opening the data directory as stored, if the directory holds
// anything and the error is about what it holds.
func ofStored(data string, err error) error {
	holds, herr := datadir.Holds(data)
	if (holds || herr != nil) && slices.Contains([]fault.Code{fault.Damaged, fault.Newer, fault.DiskFull, fault.Unavailable, fault.Internal}, fault.CodeOf(err)) {
		return stored{err}
	}
	return err
}

// keepsUp says whether choir up stays up and shows an error at the console's address until
// it is mended, and returns that error. Errors of the machine, the configuration or the
// command line end choir up, and so does another choir that has the data directory.
func keepsUp(ctx context.Context, err error) (error, bool) {
	if err == nil || ctx.Err() != nil || fault.Is(err, fault.InUse) {
		return err, false
	}
	var s stored
	if errors.As(err, &s) {
		return s.error, true
	}
	return err, slices.Contains([]fault.Code{fault.Damaged, fault.Newer, fault.DiskFull, fault.Unavailable}, fault.CodeOf(err))
}

// The first is how often the data directory is checked for changes; the second how often it
// is opened again in case something else has changed.
const (
	stoppedLook  = time.Second
	stoppedAgain = 15 * time.Second
)

// safeWords says what is safe, whatever keeps the data directory from being opened.
const safeWords = "Nothing was written over what is there, and no computer was started: what was stored is as it was found."

// serveStopped says at ln why the data directory can't be opened, until it can be; it
// closes ln. Meanwhile it does not hold the directory's lock, so that choir doctor and
// choir recover can work on it.
func serveStopped(ctx context.Context, cfg config.Config, ln net.Listener, logger *slog.Logger, why error, o announcer, open func() (*plane, upLine, error)) (p *plane, _ upLine, err error) {
	page, err := stopped.New(stopped.Options{Console: console.Files(), Host: cfg.Server.Host, Port: ln.Addr().(*net.TCPAddr).Port, Logger: logger})
	if err != nil {
		return nil, upLine{}, errors.Join(why, err, ln.Close())
	}
	before := fingerprint(cfg.Server.Data)
	problem := published(cfg.Server.Data, why)
	page.Say(problem, safeWords)
	serving, cancel := context.WithCancel(ctx)
	served := make(chan error, 1)
	go func() { served <- page.Serve(serving, ln) }()
	over := false
	defer func() {
		cancel()
		if !over {
			err = errors.Join(err, <-served)
		}
	}()
	// The command line asks at this address and is told why. It needs no token for that.
	here := client.Runtime{URL: page.URL(), PID: os.Getpid(), Process: process.Self()}
	if werr := client.WriteRuntime(cfg.Server.Data, here); werr != nil {
		logger.WarnContext(ctx, "the command line can't be told that choir up runs", "error", werr)
	} else {
		defer func() {
			if p == nil { // otherwise the file already says where the control plane is
				err = errors.Join(err, client.RemoveRuntime(cfg.Server.Data))
			}
		}()
	}
	if err := o.stopped(upLine{URL: page.URL(), PID: os.Getpid(), Data: cfg.Server.Data, Stopped: &problem}, why); err != nil {
		return nil, upLine{}, err
	}
	tick := time.NewTicker(stoppedLook)
	defer tick.Stop()
	for tried := time.Now(); ; {
		select {
		case <-ctx.Done():
			return nil, upLine{}, cli.ExitFailed // the error was printed already
		case err := <-served:
			over = true
			return nil, upLine{}, err
		case <-tick.C:
		}
		now := fingerprint(cfg.Server.Data)
		busy := fault.Is(why, fault.InUse)
		if again := time.Since(tried) > stoppedAgain && !fault.Is(why, fault.Damaged) && !fault.Is(why, fault.Newer); now == before && !busy && !again {
			continue
		}
		opened, line, err := open()
		if err == nil {
			return opened, line, nil
		}
		tried, before = time.Now(), now
		next, keeps := keepsUp(ctx, err)
		if !keeps && !fault.Is(err, fault.InUse) {
			return nil, upLine{}, next
		}
		if next.Error() != why.Error() && !fault.Is(next, fault.InUse) {
			o.again(next)
		}
		why = next
		page.Say(published(cfg.Server.Data, why), safeWords)
	}
}

// named finds the ids of computers in a text.
var named = lazy.Regexp(`\b[a-z0-9]{16}\b`)

// published is what may be said of an error to whoever can reach the port. It leaves out
// where on this machine the data are, which computers there are, and what only the
// terminal's user should read.
func published(data string, err error) view.Refusal {
	p := view.Describe(err)
	if p.Code == string(fault.Internal) {
		p.Detail = "Something that is stored can't be read; the terminal that choir up runs in says what."
	}
	if fault.Is(err, fault.InUse) {
		p.Detail, p.Hint = "Another choir works on what is stored: a recovery or a look at it, for example.", "Wait until it is done."
	}
	if p.Hint == "" {
		p.Hint = "Run choir doctor, which looks through what is stored, or restore it from a backup."
	}
	for _, text := range []*string{&p.Detail, &p.Hint} {
		*text = strings.ReplaceAll(strings.ReplaceAll(*text, data+string(filepath.Separator), ""), data, "the data directory")
		*text = named().ReplaceAllString(*text, "…")
	}
	return p
}

// fingerprint changes when an entry at the top of a data directory, or one of its keys,
// changes. Entries that examining a directory writes itself are left out; in a new
// directory that is all of them.
func fingerprint(data string) string {
	if datadir.BeingMade(data) {
		return ""
	}
	var out strings.Builder
	for _, dir := range []string{data, filepath.Join(data, "keys")} {
		entries, err := os.ReadDir(dir)
		if err != nil {
			fmt.Fprintln(&out, err)
		}
		for _, e := range entries {
			if slices.Contains([]string{"choir.lock", "cache", "reserve", logDir, "runtime.json", "control.sqlite-shm"}, e.Name()) {
				continue
			}
			info, err := e.Info()
			if errors.Is(err, fs.ErrNotExist) {
				continue // it was removed in the meantime, which the next look notices
			}
			if err != nil {
				fmt.Fprintln(&out, e.Name(), err)
				continue
			}
			st := info.Sys().(*syscall.Stat_t)
			fmt.Fprintln(&out, e.Name(), st.Ino, st.Size, st.Mode, st.Ctim)
		}
	}
	return out.String()
}
