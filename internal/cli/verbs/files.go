package verbs

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

	"choir.dev/choiros/internal/cli"
	"choir.dev/choiros/internal/cli/terminal"
	"choir.dev/choiros/internal/client"
	"choir.dev/choiros/internal/view"
)

// Answers of verbs for which the API has no type.
type (
	removed struct {
		ID      string `json:"id"`
		Removed bool   `json:"removed"`
	}
	got struct {
		ID      string `json:"id"`
		Local   string `json:"local"`
		Size    int64  `json:"size"`
		Version string `json:"version"`
	}
)

// Files is choir files.
func Files() cli.Verb {
	return cli.Verb{Use: "files", Short: "List, read, write, move and remove files of the computer, and bring them back", Verbs: []cli.Verb{
		filesList(), filesPrint(), filesGet(), filesPut(), filesRemove(), filesMove(), filesTrash(), filesPutBack(),
	}}
}

func filesList() cli.Verb {
	return cli.Verb{
		Use: "ls [PATH]", Short: "List a folder", Args: cli.Between(0, 1), JSON: []view.File{},
		Examples: []string{"choir files ls", "choir files ls workspace/project --json"},
		Asks: func(ctx context.Context, t *cli.Call, c *client.Client, args []string) error {
			path := ""
			if len(args) == 1 {
				path = args[0]
			}
			files, err := c.Files(ctx, strings.Trim(path, "/"))
			if err != nil {
				return err
			}
			return t.Show(cli.List(files), func(w io.Writer) {
				for _, f := range files {
					terminal.Row(w, f.Mode, f.Kind, f.Size, terminal.Time(f.Modified), terminal.OneLine(f.ID, 200), notKept(f))
				}
			})
		},
	}
}

func filesPrint() cli.Verb {
	return cli.Verb{
		Use: "cat PATH", Short: "Print a file", Args: cli.Exactly(1), Raw: "the file's bytes",
		Examples: []string{"choir files cat workspace/notes.md"},
		Asks: func(ctx context.Context, _ *cli.Call, c *client.Client, args []string) error {
			r, _, err := c.Get(ctx, args[0])
			if err != nil {
				return err
			}
			defer r.Close()
			w, done := terminal.OnScreen(os.Stdout)
			_, err = io.Copy(w, r)
			return errors.Join(err, done())
		},
	}
}

func filesGet() cli.Verb {
	return cli.Verb{
		Use: "get PATH [LOCAL]", Short: "Copy a file from the computer", Args: cli.Between(1, 2), JSON: got{},
		Long: `LOCAL is the file's new name, or a directory that it goes into under its own name; without
it that is the directory you are in. As with cp, a local file of that name is overwritten.`,
		Examples: []string{"choir files get workspace/notes.md", "choir files get workspace/notes.md /tmp/notes.md", "choir files get workspace/notes.md /tmp/"},
		Asks:     getFile,
	}
}

// ifMatch is the flag of a verb that acts only on a version of a file that the caller has
// seen.
func ifMatch(f *pflag.FlagSet, version *string) {
	f.Var((*seenVersion)(version), "if-match", "only if the file has the `VERSION`, as files put and get --json say; any: whatever is there, none: only where nothing is")
}

// seenVersion is the flag's value; an empty one is refused.
type seenVersion string

func (v *seenVersion) String() string { return string(*v) }
func (v *seenVersion) Type() string   { return "string" }

func (v *seenVersion) Set(only string) error {
	if only == "" { // an unset variable in a script must not mean: replace whatever there is
		return errors.New("names no version; any is whatever is there")
	}
	*v = seenVersion(only)
	return nil
}

func filesPut() cli.Verb {
	var only string
	return cli.Verb{
		Use: "put LOCAL PATH", Short: "Copy a file to the computer; LOCAL - is standard input", Args: cli.Exactly(2), JSON: view.File{},
		Examples: []string{"choir files put notes.md workspace/notes.md", "date | choir files put - workspace/date.txt", "choir files put notes.md workspace/notes.md --if-match none"},
		Flags:    func(f *pflag.FlagSet) { ifMatch(f, &only) },
		Asks: func(ctx context.Context, t *cli.Call, c *client.Client, args []string) error {
			put := view.Put{Path: args[1], If: only}
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
				if st.IsDir() {
					return cli.Usage(fmt.Errorf("%s is a directory; choir add brings one in", args[0]))
				}
				in, total, put.Mode = f, st.Size(), view.ModeFile
				if st.Mode()&0o100 != 0 {
					put.Mode = view.ModeExecutable
				}
			}
			p := terminal.ProgressOf("putting "+args[1], total, in == os.Stdin && term.IsTerminal(int(os.Stdin.Fd())))
			file, err := c.Put(ctx, put, p.Of(in))
			p.End()
			if err != nil {
				return err
			}
			return t.Show(file, func(w io.Writer) {
				terminal.Row(w, "wrote", file.ID, fmt.Sprintf("%d bytes", file.Size))
				if file.Unkept != "" {
					terminal.Row(w, "in no checkpoint", terminal.OneLine(file.ID, 200)+": "+terminal.OneLine(file.Unkept, 300))
				}
			})
		},
	}
}

func filesMove() cli.Verb {
	return cli.Verb{
		Use: "mv PATH PATH", Short: "Give a file or folder another name, where nothing is", Args: cli.Exactly(2), JSON: view.File{},
		Examples: []string{"choir files mv workspace/a.md workspace/b.md"},
		Asks: func(ctx context.Context, t *cli.Call, c *client.Client, args []string) error {
			f, err := c.Move(ctx, args[0], args[1])
			if err != nil {
				return err
			}
			return t.Show(f, func(w io.Writer) { terminal.Row(w, "moved", terminal.OneLine(f.ID, 200)) })
		},
	}
}

func filesTrash() cli.Verb {
	return cli.Verb{
		Use: "trash", Short: "List what was removed or overwritten in the last week, newest first", Args: cli.Exactly(0), JSON: []view.Trashed{},
		Examples: []string{"choir files trash"},
		Asks: func(ctx context.Context, t *cli.Call, c *client.Client, _ []string) error {
			list, err := c.Trash(ctx)
			if err != nil {
				return err
			}
			return t.Show(list, func(w io.Writer) {
				for _, e := range list {
					terminal.Row(w, e.ID, e.By, e.Kind, e.Size, terminal.Time(e.Time), terminal.OneLine(e.Path, 200))
				}
			})
		},
	}
}

func filesPutBack() cli.Verb {
	return cli.Verb{
		Use: "untrash ENTRY [PATH]", Short: "Put something back from the trash, where it was or as PATH; nothing may be there", Args: cli.Between(1, 2), JSON: view.File{},
		Examples: []string{"choir files untrash ENTRY", "choir files untrash ENTRY workspace/other.md"},
		Asks: func(ctx context.Context, t *cli.Call, c *client.Client, args []string) error {
			f, err := c.PutBack(ctx, args[0], strings.Join(args[1:], ""))
			if err != nil {
				return err
			}
			return t.Show(f, func(w io.Writer) { terminal.Row(w, "put back", terminal.OneLine(f.ID, 200)) })
		},
	}
}

// notKept says that no checkpoint holds an entry, or part of its content.
func notKept(f view.File) string {
	switch {
	case f.Unkept != "":
		return "not kept: it " + terminal.OneLine(f.Unkept, 300)
	case f.Beneath > 0:
		return fmt.Sprintf("%d in it not kept", f.Beneath)
	}
	return ""
}

// localName is where a file is copied to: the named place or, as with cp, in it under the
// file's own name if it is a directory.
func localName(args []string) (string, error) {
	own := filepath.Base(args[0])
	if len(args) == 1 {
		return own, nil
	}
	switch st, err := os.Stat(args[1]); {
	case err == nil && st.IsDir():
		return filepath.Join(args[1], own), nil
	case err == nil || !errors.Is(err, fs.ErrNotExist):
		return args[1], err
	case strings.HasSuffix(args[1], "/"):
		return "", cli.Usage(fmt.Errorf("there is no directory %s", args[1]))
	}
	return args[1], nil
}

func getFile(ctx context.Context, t *cli.Call, c *client.Client, args []string) error {
	local, err := localName(args)
	if err != nil {
		return err
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
	p := terminal.NewProgress("getting "+args[0], file.Size)
	_, err = io.Copy(f, p.Of(r))
	p.End()
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
	return t.Show(got{args[0], local, file.Size, file.Version}, func(w io.Writer) { terminal.Row(w, "got", local, fmt.Sprintf("%d bytes", file.Size)) })
}

func filesRemove() cli.Verb {
	var recursive bool
	var only string
	return cli.Verb{
		Use: "rm PATH", Short: "Remove a file; `choir files trash` has it for a week", Args: cli.Exactly(1), JSON: removed{},
		Examples: []string{"choir files rm workspace/notes.md", "choir files rm -r workspace/project"},
		Asks: func(ctx context.Context, t *cli.Call, c *client.Client, args []string) error {
			if err := c.Remove(ctx, args[0], only, recursive); err != nil {
				return err
			}
			return t.Show(removed{args[0], true}, func(w io.Writer) { terminal.Row(w, "removed", args[0]) })
		},
		Flags: func(f *pflag.FlagSet) {
			f.BoolVarP(&recursive, "recursive", "r", false, "a folder and everything in it")
			ifMatch(f, &only)
		},
	}
}
