package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/pflag"
	"golang.org/x/term"

	"choir.dev/choiros/internal/client"
	"choir.dev/choiros/internal/view"
)

// What verbs answer with of which the API says nothing.
type (
	removed struct {
		ID      string `json:"id"`
		Removed bool   `json:"removed"`
	}
	got struct {
		ID    string `json:"id"`
		Local string `json:"local"`
		Size  int64  `json:"size"`
	}
)

func filesVerb() verb {
	return verb{use: "files", short: "List, read, write, move and remove files of the computer, and bring them back", verbs: []verb{
		{
			use: "ls [PATH]", short: "List a folder", args: between(0, 1), json: []view.File{},
			examples: []string{"choir files ls", "choir files ls workspace/project --json"},
			asks: func(ctx context.Context, t *talk, c *client.Client, args []string) error {
				path := ""
				if len(args) == 1 {
					path = args[0]
				}
				files, err := c.Files(ctx, strings.Trim(path, "/"))
				if err != nil {
					return err
				}
				return t.show(list(files), func(w io.Writer) {
					for _, f := range files {
						row(w, f.Mode, f.Kind, f.Size, ago(f.Modified), oneLine(f.ID, 200), notKept(f))
					}
				})
			},
		},
		{
			use: "cat PATH", short: "Print a file", args: exactly(1), raw: "the file's bytes",
			examples: []string{"choir files cat workspace/notes.md"},
			asks: func(ctx context.Context, _ *talk, c *client.Client, args []string) error {
				r, _, err := c.Get(ctx, args[0])
				if err != nil {
					return err
				}
				defer r.Close()
				w, done := onScreen(os.Stdout)
				_, err = io.Copy(w, r)
				return errors.Join(err, done())
			},
		},
		{
			use: "get PATH [LOCAL]", short: "Copy a file from the computer", args: between(1, 2), json: got{},
			examples: []string{"choir files get workspace/notes.md", "choir files get workspace/notes.md /tmp/notes.md"},
			asks:     getFile,
		},
		{
			use: "put LOCAL PATH", short: "Copy a file to the computer; LOCAL - is standard input", args: exactly(2), json: view.File{},
			examples: []string{"choir files put notes.md workspace/notes.md", "date | choir files put - workspace/date.txt"},
			asks: func(ctx context.Context, t *talk, c *client.Client, args []string) error {
				put := view.Put{Path: args[1]}
				in, total := io.Reader(os.Stdin), int64(0)
				if args[0] != "-" {
					f, err := os.Open(args[0])
					if err != nil {
						return err
					}
					defer f.Close()
					st, err := f.Stat()
					if err != nil {
						return err
					}
					in, total, put.Mode = f, st.Size(), view.ModeFile
					if st.Mode()&0o100 != 0 {
						put.Mode = view.ModeExecutable
					}
				}
				p := progressOf("putting "+args[1], total, in == os.Stdin && term.IsTerminal(int(os.Stdin.Fd())))
				file, err := c.Put(ctx, put, p.of(in))
				p.end()
				if err != nil {
					return err
				}
				return t.show(file, func(w io.Writer) {
					row(w, "wrote", file.ID, fmt.Sprintf("%d bytes", file.Size))
					if file.Unkept != "" {
						row(w, "in no checkpoint", oneLine(file.ID, 200)+": "+oneLine(file.Unkept, 300))
					}
				})
			},
		},
		rmVerb(),
		{
			use: "mv FROM TO", short: "Give a file or folder another name, where nothing is", args: exactly(2), json: view.File{},
			examples: []string{"choir files mv workspace/a.md workspace/b.md"},
			asks: func(ctx context.Context, t *talk, c *client.Client, args []string) error {
				f, err := c.Move(ctx, args[0], args[1])
				if err != nil {
					return err
				}
				return t.show(f, func(w io.Writer) { row(w, "moved", oneLine(f.ID, 200)) })
			},
		},
		{
			use: "trash", short: "List what was removed or overwritten in the last week, newest first", args: exactly(0), json: []view.Trashed{},
			examples: []string{"choir files trash"},
			asks: func(ctx context.Context, t *talk, c *client.Client, _ []string) error {
				list, err := c.Trash(ctx)
				if err != nil {
					return err
				}
				return t.show(list, func(w io.Writer) {
					for _, e := range list {
						row(w, e.ID, e.By, e.Kind, e.Size, ago(e.Time), oneLine(e.Path, 200))
					}
				})
			},
		},
		{
			use: "untrash ID [PATH]", short: "Put something back from the trash, where it was or as PATH; nothing may be there", args: between(1, 2), json: view.File{},
			examples: []string{"choir files untrash ID", "choir files untrash ID workspace/other.md"},
			asks: func(ctx context.Context, t *talk, c *client.Client, args []string) error {
				f, err := c.PutBack(ctx, args[0], strings.Join(args[1:], ""))
				if err != nil {
					return err
				}
				return t.show(f, func(w io.Writer) { row(w, "put back", oneLine(f.ID, 200)) })
			},
		},
	}}
}

// notKept says of an entry, or of what is in it, that no checkpoint holds it.
func notKept(f view.File) string {
	switch {
	case f.Unkept != "":
		return "not kept: it " + oneLine(f.Unkept, 300)
	case f.Beneath > 0:
		return fmt.Sprintf("%d in it not kept", f.Beneath)
	}
	return ""
}

func getFile(ctx context.Context, t *talk, c *client.Client, args []string) error {
	local := filepath.Base(args[0])
	if len(args) == 2 {
		local = args[1]
	}
	r, file, err := c.Get(ctx, args[0])
	if err != nil {
		return err
	}
	defer r.Close()
	f, err := os.CreateTemp(filepath.Dir(local), ".choir-get-*")
	if err != nil {
		return err
	}
	p := newProgress("getting "+args[0], file.Size)
	_, err = io.Copy(f, p.of(r))
	p.end()
	mode := fs.FileMode(0o644)
	if file.Mode == view.ModeExecutable {
		mode = 0o755
	}
	if err = errors.Join(err, f.Chmod(mode), f.Close()); err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	if err := os.Rename(f.Name(), local); err != nil {
		return err
	}
	return t.show(got{args[0], local, file.Size}, func(w io.Writer) { row(w, "got", local, fmt.Sprintf("%d bytes", file.Size)) })
}

func rmVerb() verb {
	var recursive bool
	return verb{
		use: "rm PATH", short: "Remove a file; `choir files trash` has it for a week", args: exactly(1), json: removed{},
		examples: []string{"choir files rm workspace/notes.md", "choir files rm -r workspace/project"},
		asks: func(ctx context.Context, t *talk, c *client.Client, args []string) error {
			if err := c.Remove(ctx, args[0], recursive); err != nil {
				return err
			}
			return t.show(removed{args[0], true}, func(w io.Writer) { row(w, "removed", args[0]) })
		},
		flags: func(f *pflag.FlagSet) {
			f.BoolVarP(&recursive, "recursive", "r", false, "a folder and everything in it")
		},
	}
}
