package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/spf13/pflag"
	"golang.org/x/sys/unix"

	"choir.dev/choiros/internal/cli"
	"choir.dev/choiros/internal/cli/terminal"
	"choir.dev/choiros/internal/fault"
)

// `choir up` keeps its log in DATA/logs, in two files of at most maxLogFile bytes.
const (
	logDir     = "logs"
	logFile    = "choir.log"
	logBefore  = "choir.log.1"
	maxLogFile = 4 << 20
	maxLogLine = 64 << 10
)

// logKeeper writes the log of `choir up` to the data directory, once it is known, beside
// standard error. What can't be written there is lost in the file only: a full disk is
// reported and stops nothing.
type logKeeper struct {
	mu   sync.Mutex
	data *os.Root
	f    *os.File
	size int64
}

// attach tells the keeper which data directory it is; a second call does nothing. No file
// is made before there is something to log.
func (k *logKeeper) attach(data string) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.data != nil {
		return nil
	}
	var err error
	k.data, err = os.OpenRoot(data)
	return fault.Wrap("logs", err)
}

// open opens the newest file. The lock is held.
func (k *logKeeper) open() error {
	if err := k.data.Mkdir(logDir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	f, err := k.data.OpenFile(filepath.Join(logDir, logFile), os.O_APPEND|os.O_CREATE|os.O_WRONLY|unix.O_NONBLOCK, 0o600)
	if err != nil {
		return err
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s is no file", logFile)
	}
	if err != nil {
		return errors.Join(err, f.Close())
	}
	k.f, k.size = f, info.Size()
	return nil
}

// Write implements io.Writer for one line.
func (k *logKeeper) Write(line []byte) (int, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.data == nil {
		return len(line), nil
	}
	if k.f != nil && k.size+int64(len(line)) > maxLogFile {
		err := errors.Join(k.f.Close(), k.data.Rename(filepath.Join(logDir, logFile), filepath.Join(logDir, logBefore)))
		if k.f = nil; err != nil {
			return 0, err
		}
	}
	if k.f == nil {
		if err := k.open(); err != nil {
			return 0, err
		}
	}
	n, err := k.f.Write(line)
	k.size += int64(n)
	return n, err
}

func (k *logKeeper) close() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.data == nil {
		return nil
	}
	err := k.data.Close()
	if k.f != nil {
		err = errors.Join(err, k.f.Close())
	}
	k.data, k.f = nil, nil
	return err
}

// logger logs to standard error and, as JSON, to the keeper.
func (k *logKeeper) logger(level slog.Level) *slog.Logger {
	o := &slog.HandlerOptions{Level: level}
	return slog.New(slog.NewMultiHandler(slog.NewTextHandler(os.Stderr, o), slog.NewJSONHandler(k, o)))
}

func logsVerb() cli.Verb {
	var follow bool
	var limit int
	return cli.Verb{
		Use: "logs", Short: "Show what choir up has logged, newest last", Args: cli.Exactly(0), Raw: "a JSON object a line with --json, else a line of text", Data: true,
		Long: `It reads DATA/logs, whether or not a control plane runs; the last 4 to 8 MiB are kept. Those
are warnings and errors, and everything where choir up was started with -v; where there was
none, there is no DATA/logs either, and a line on standard error says so.`,
		Examples: []string{"choir logs", "choir logs --follow --limit 0", "choir logs --json | tail -1"},
		Flags: func(f *pflag.FlagSet) {
			f.BoolVarP(&follow, "follow", "f", false, "go on as more is logged")
			f.IntVar(&limit, "limit", 200, "how many lines; 0: all")
		},
		Does: func(ctx context.Context, t *cli.Call, _ []string) error {
			if limit < 0 {
				return cli.Usage(errors.New("--limit is a number of at least 0, where 0 is all"))
			}
			data, err := t.Directory()
			if err != nil {
				return err
			}
			dir := filepath.Join(data, logDir)
			if _, err := os.Stat(data); errors.Is(err, fs.ErrNotExist) {
				return fault.New("logs", fault.NotFound, "Name the data directory with --data.", fmt.Errorf("there is no %s", data))
			}
			lines, at, err := lastLines(dir, limit)
			if err != nil {
				return err
			}
			if len(lines) == 0 {
				fmt.Fprintf(os.Stderr, "choir: nothing is logged in %s: there were no warnings or errors, and choir up -v logs more\n", terminal.OneLine(dir, 500))
			}
			for {
				for _, line := range lines {
					if err := logged(t, line); err != nil {
						return err
					}
				}
				if !follow {
					return nil
				}
				select {
				case <-ctx.Done():
					return context.Cause(ctx)
				case <-time.After(200 * time.Millisecond):
				}
				if lines, err = at.more(dir); err != nil {
					return err
				}
			}
		},
	}
}

// logged prints one line of the log for a person.
func logged(t *cli.Call, line []byte) error {
	var members map[string]any
	if t.JSON || json.Unmarshal(line, &members) != nil {
		_, err := fmt.Printf("%s\n", terminal.SafeJSON(line))
		return err
	}
	var b bytes.Buffer
	at, _ := members["time"].(string)
	if when, err := time.Parse(time.RFC3339Nano, at); err == nil {
		at = terminal.Time(when)
	}
	fmt.Fprintf(&b, "%s  %s  %s", at, members["level"], members["msg"])
	for _, name := range slices.Sorted(maps.Keys(members)) {
		if name != "time" && name != "level" && name != "msg" {
			fmt.Fprintf(&b, "  %s=%v", name, members[name])
		}
	}
	_, err := fmt.Println(terminal.OneLine(b.String(), maxLogLine))
	return err
}

// place is how far the log has been read: how many bytes of which file.
type place struct {
	file fs.FileInfo
	read int64
}

// lastLines returns the last limit lines of a log, all for 0, and the place where they end.
func lastLines(dir string, limit int) ([][]byte, *place, error) {
	var lines [][]byte
	at := &place{}
	for _, name := range []string{logBefore, logFile} {
		b, info, err := wholeLines(filepath.Join(dir, name), 0)
		if err != nil {
			return nil, nil, err
		}
		for line := range bytes.Lines(b) {
			lines = append(lines, bytes.TrimRight(line, "\n"))
		}
		at = &place{info, int64(len(b))}
	}
	if limit > 0 && len(lines) > limit {
		lines = lines[len(lines)-limit:]
	}
	return lines, at, nil
}

// more returns the lines that were written since, and moves the place behind them.
func (p *place) more(dir string) (lines [][]byte, err error) {
	take := func(name string, from int64) (int64, fs.FileInfo, error) {
		b, info, err := wholeLines(filepath.Join(dir, name), from)
		for line := range bytes.Lines(b) {
			lines = append(lines, bytes.TrimRight(line, "\n"))
		}
		return from + int64(len(b)), info, err
	}
	now, err := os.Stat(filepath.Join(dir, logFile))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fault.Wrap("logs", err)
	}
	if p.file != nil && (now == nil || !os.SameFile(now, p.file)) {
		if before, err := os.Stat(filepath.Join(dir, logBefore)); err == nil && os.SameFile(before, p.file) {
			if _, _, err := take(logBefore, p.read); err != nil {
				return nil, err
			}
		}
		p.read = 0
	}
	p.read, p.file, err = take(logFile, p.read)
	return lines, err
}

// wholeLines reads a file from an offset to the end of its last whole line. A file that
// does not exist has no lines.
func wholeLines(path string, from int64) ([]byte, fs.FileInfo, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil, nil
	}
	if err != nil {
		return nil, nil, fault.Wrap("logs", err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, nil, fault.Wrap("logs", err)
	}
	b, err := io.ReadAll(bufio.NewReader(io.NewSectionReader(f, from, maxLogFile+maxLogLine)))
	if err != nil {
		return nil, nil, fault.Wrap("logs", err)
	}
	return b[:bytes.LastIndexByte(b, '\n')+1], info, nil
}
