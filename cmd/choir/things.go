package main

import (
	"archive/tar"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"choir.dev/choiros/internal/client"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/view"
)

func execCmd() *cobra.Command {
	var cwd string
	cmd := verb("exec [--cwd P] -- CMD…", "Run a command of your own on the live files, checkpoints around it", between(1, -1),
		func(ctx context.Context, t *talk, c *client.Client, _ *cobra.Command, args []string) error {
			stdout, outDone := onScreen(os.Stdout)
			stderr, errDone := onScreen(os.Stderr)
			eio := view.ExecIO{Stdout: stdout, Stderr: stderr}
			if t.json {
				eio.Stdout = stderr
			}
			if st, err := os.Stdin.Stat(); err == nil && st.Mode()&os.ModeCharDevice == 0 {
				eio.Stdin = os.Stdin
			}
			exit, err := c.Exec(ctx, view.ExecRequest{Argv: args, Cwd: cwd}, eio)
			if err = errors.Join(err, outDone(), errDone()); err != nil {
				return err
			}
			if t.json {
				if err := printJSON(exit); err != nil {
					return err
				}
			}
			if !t.json {
				printUnkept(os.Stderr, exit.Unkept)
			}
			if exit.Reason != "" {
				fmt.Fprintf(os.Stderr, "choir: the command was ended: %s\n", oneLine(exit.Reason, 300))
			}
			if exit.Code != 0 {
				return exitError(exit.Code)
			}
			return nil
		})
	cmd.Flags().StringVar(&cwd, "cwd", "", "folder to run in, relative to the computer's root")
	cmd.Flags().SetInterspersed(false)
	return cmd
}

func filesCmd() *cobra.Command {
	cmd := group("files", "List, read, write, move and remove files of the computer, and bring them back")
	cmd.AddCommand(
		verb("ls [PATH]", "List a folder", between(0, 1),
			func(ctx context.Context, t *talk, c *client.Client, _ *cobra.Command, args []string) error {
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
			}),
		verb("cat PATH", "Print a file", exactly(1),
			func(ctx context.Context, _ *talk, c *client.Client, _ *cobra.Command, args []string) error {
				r, _, err := c.Get(ctx, args[0])
				if err != nil {
					return err
				}
				defer r.Close()
				w, done := onScreen(os.Stdout)
				_, err = io.Copy(w, r)
				return errors.Join(err, done())
			}),
		verb("get PATH [LOCAL]", "Copy a file from the computer", between(1, 2), getFile),
		verb("put LOCAL PATH", "Copy a file to the computer; LOCAL - is standard input", exactly(2),
			func(ctx context.Context, t *talk, c *client.Client, _ *cobra.Command, args []string) error {
				in := io.Reader(os.Stdin)
				if args[0] != "-" {
					f, err := os.Open(args[0])
					if err != nil {
						return err
					}
					defer f.Close()
					in = f
				}
				file, err := c.Put(ctx, args[1], in)
				if err != nil {
					return err
				}
				return t.show(file, func(w io.Writer) {
					row(w, "wrote", file.ID, fmt.Sprintf("%d bytes", file.Size))
					if file.Unkept != "" {
						row(w, "in no checkpoint", oneLine(file.ID, 200)+": "+oneLine(file.Unkept, 300))
					}
				})
			}),
		rmCmd(),
		verb("mv FROM TO", "Give a file or folder another name, where nothing is", exactly(2),
			func(ctx context.Context, t *talk, c *client.Client, _ *cobra.Command, args []string) error {
				f, err := c.Move(ctx, args[0], args[1])
				if err != nil {
					return err
				}
				return t.show(f, func(w io.Writer) { row(w, "moved", oneLine(f.ID, 200)) })
			}),
		verb("trash", "List what was removed or overwritten in the last week, newest first", exactly(0),
			func(ctx context.Context, t *talk, c *client.Client, _ *cobra.Command, _ []string) error {
				list, err := c.Trash(ctx)
				if err != nil {
					return err
				}
				return t.show(list, func(w io.Writer) {
					for _, e := range list {
						row(w, e.ID, e.By, e.Kind, e.Size, ago(e.Time), oneLine(e.Path, 200))
					}
				})
			}),
		verb("untrash ID [PATH]", "Put something back from the trash, where it was or as PATH; nothing may be there", between(1, 2),
			func(ctx context.Context, t *talk, c *client.Client, _ *cobra.Command, args []string) error {
				f, err := c.PutBack(ctx, args[0], strings.Join(args[1:], ""))
				if err != nil {
					return err
				}
				return t.show(f, func(w io.Writer) { row(w, "put back", oneLine(f.ID, 200)) })
			}))
	return cmd
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

func getFile(ctx context.Context, t *talk, c *client.Client, _ *cobra.Command, args []string) error {
	local := filepath.Base(args[0])
	if len(args) == 2 {
		local = args[1]
	}
	r, size, err := c.Get(ctx, args[0])
	if err != nil {
		return err
	}
	defer r.Close()
	f, err := os.CreateTemp(filepath.Dir(local), ".choir-get-*")
	if err != nil {
		return err
	}
	_, err = io.Copy(f, r)
	if err = errors.Join(err, f.Chmod(0o644), f.Close()); err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	if err := os.Rename(f.Name(), local); err != nil {
		return err
	}
	return t.show(map[string]any{"id": args[0], "local": local, "size": size}, func(w io.Writer) { row(w, "got", local, fmt.Sprintf("%d bytes", size)) })
}

func rmCmd() *cobra.Command {
	var recursive bool
	cmd := verb("rm PATH", "Remove a file; `choir files trash` has it for a week", exactly(1),
		func(ctx context.Context, t *talk, c *client.Client, _ *cobra.Command, args []string) error {
			if err := c.Remove(ctx, args[0], recursive); err != nil {
				return err
			}
			return t.show(map[string]any{"id": args[0], "removed": true}, func(w io.Writer) { row(w, "removed", args[0]) })
		})
	cmd.Flags().BoolVarP(&recursive, "recursive", "r", false, "a folder and everything in it")
	return cmd
}

func addCmd() *cobra.Command {
	var name string
	cmd := verb("add PATH|URL", "Bring a folder or a repository into workspace/", exactly(1),
		func(ctx context.Context, t *talk, c *client.Client, _ *cobra.Command, args []string) error {
			added, err := add(ctx, c, args[0], name)
			if err != nil {
				return err
			}
			return t.show(added, func(w io.Writer) {
				row(w, "added", added.ID, fmt.Sprintf("%d files, %d bytes", added.Files, added.Bytes))
				printUnkept(w, added.Unkept)
			})
		})
	cmd.Flags().StringVar(&name, "name", "", "folder under workspace/; by default the last part of PATH or URL")
	return cmd
}

func add(ctx context.Context, c *client.Client, what, name string) (view.Added, error) {
	if strings.Contains(what, "://") || (strings.Contains(what, "@") && strings.Contains(what, ":")) {
		return c.AddURL(ctx, view.AddRequest{URL: what, Name: name})
	}
	dir, err := filepath.Abs(what)
	if err != nil {
		return view.Added{}, err
	}
	if st, err := os.Stat(dir); err != nil {
		return view.Added{}, err
	} else if !st.IsDir() {
		return view.Added{}, fault.New("add", fault.Invalid, "Use: choir files put "+what+" workspace/"+filepath.Base(what), errors.New(what+" is not a folder"))
	}
	if name == "" {
		name = filepath.Base(dir)
	}
	var left view.Unkept // what can't be packed
	r, w := io.Pipe()
	packed := make(chan error, 1)
	go func() { // AddTar reads to the end, or r is closed, either of which ends it
		err := writeTar(w, dir, func(p, kind string) {
			left.Files++
			if len(left.Paths) < maxLeftHere {
				left.Paths = append(left.Paths, view.UnkeptPath{Path: "workspace/" + name + "/" + p, Reason: "is a " + kind + ", and was not brought in"})
			}
		})
		w.CloseWithError(err)
		packed <- err
	}()
	added, err := c.AddTar(ctx, name, "file://"+dir, r)
	_ = r.CloseWithError(errNotTaken) // never fails
	if perr := <-packed; perr != nil && !errors.Is(perr, errNotTaken) && !errors.Is(perr, io.ErrClosedPipe) {
		return view.Added{}, fault.New("add", fault.Invalid, "Nothing of it was brought in. If somebody is changing it, try again once it rests.", fmt.Errorf("read %s: %w", dir, perr))
	}
	// What could not be packed is missing as much as what was not taken.
	added.Skipped += left.Files
	added.Unkept.Files += left.Files
	added.Unkept.Paths = append(list(left.Paths), added.Unkept.Paths...)
	return added, err
}

// maxLeftHere bounds how many paths are listed that could not be packed.
const maxLeftHere = 50

var errNotTaken = errors.New("the rest is not wanted")

// writeTar packs a folder: names, bytes, executable bits and symlinks as they
// are; sockets, pipes and devices are left out, and told to left.
func writeTar(w io.Writer, dir string, left func(path, kind string)) error {
	tw := tar.NewWriter(w)
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	if err := packDir(tw, root, "", left); err != nil {
		return err // without the archive's end: it is not whole
	}
	return tw.Close()
}

// packDir packs what is in a folder. (The fs.FS of a Root would refuse names
// that are not valid UTF-8.)
func packDir(tw *tar.Writer, root *os.Root, dir string, left func(path, kind string)) error {
	d, err := root.Open(cmp.Or(dir, "."))
	if err != nil {
		return err
	}
	names, err := d.Readdirnames(-1)
	if err = errors.Join(err, d.Close()); err != nil {
		return err
	}
	slices.Sort(names)
	for _, name := range names {
		if dir != "" {
			name = dir + "/" + name
		}
		if err := packEntry(tw, root, name, left); err != nil {
			return err
		}
	}
	return nil
}

func packEntry(tw *tar.Writer, root *os.Root, name string, left func(path, kind string)) error {
	info, err := root.Lstat(name)
	if err != nil {
		return err
	}
	mode := info.Mode()
	if !mode.IsRegular() && !mode.IsDir() && mode&fs.ModeSymlink == 0 {
		left(name, kindOf(mode))
		return nil
	}
	link := ""
	if mode&fs.ModeSymlink != 0 {
		if link, err = root.Readlink(name); err != nil {
			return err
		}
	}
	h, err := tar.FileInfoHeader(info, link)
	if err != nil {
		return err
	}
	h.Name = name
	if mode.IsDir() {
		h.Name += "/"
	}
	h.Uid, h.Gid, h.Uname, h.Gname = 0, 0, "", ""
	if err := tw.WriteHeader(h); err != nil {
		return err
	}
	switch {
	case mode.IsDir():
		return packDir(tw, root, name, left)
	case !mode.IsRegular():
		return nil
	}
	f, err := root.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = io.CopyN(tw, f, h.Size)
	return err
}

// kindOf names what is neither a file nor a folder nor a link.
func kindOf(m fs.FileMode) string {
	switch {
	case m&fs.ModeNamedPipe != 0:
		return "fifo"
	case m&fs.ModeSocket != 0:
		return "socket"
	}
	return "device"
}

func secretsCmd() *cobra.Command {
	cmd := group("secrets", "Keep secrets, such as ANTHROPIC_API_KEY, encrypted on this machine")
	cmd.AddCommand(
		verb("set NAME", "Store a secret; its value is read from standard input", exactly(1),
			func(ctx context.Context, t *talk, c *client.Client, _ *cobra.Command, args []string) error {
				value, err := readSecret()
				if err != nil {
					return err
				}
				if err := c.SetSecret(ctx, args[0], value); err != nil {
					return err
				}
				return t.show(map[string]any{"id": args[0]}, func(w io.Writer) { row(w, "stored", args[0]) })
			}),
		verb("ls", "List the names of stored secrets", exactly(0),
			func(ctx context.Context, t *talk, c *client.Client, _ *cobra.Command, _ []string) error {
				secrets, err := c.Secrets(ctx)
				if err != nil {
					return err
				}
				return t.show(list(secrets), func(w io.Writer) {
					for _, s := range secrets {
						row(w, s.ID, s.Source, ago(s.Updated))
					}
				})
			}),
		verb("rm NAME", "Remove a secret", exactly(1),
			func(ctx context.Context, t *talk, c *client.Client, _ *cobra.Command, args []string) error {
				if err := c.RemoveSecret(ctx, args[0]); err != nil {
					return err
				}
				return t.show(map[string]any{"id": args[0], "removed": true}, func(w io.Writer) { row(w, "removed", args[0]) })
			}))
	return cmd
}

// readSecret reads a value without showing it: from a terminal with echo off,
// else all of standard input without the line end.
func readSecret() (string, error) {
	var b []byte
	var err error
	if fd := int(os.Stdin.Fd()); term.IsTerminal(fd) {
		fmt.Fprint(os.Stderr, "Value (not shown): ")
		b, err = term.ReadPassword(fd)
		fmt.Fprintln(os.Stderr)
	} else {
		b, err = io.ReadAll(io.LimitReader(os.Stdin, 64<<10+2))
	}
	if err != nil {
		return "", err
	}
	value := strings.TrimRight(string(b), "\r\n")
	if value == "" {
		return "", fault.New("secrets set", fault.Invalid, "Pipe the value in: printf %s VALUE | choir secrets set NAME", errors.New("the value is empty"))
	}
	return value, nil
}

func modelsCmd() *cobra.Command {
	cmd := verb("models", "List models; models test [NAME] asks one for a word", exactly(0),
		func(ctx context.Context, t *talk, c *client.Client, _ *cobra.Command, _ []string) error {
			models, err := c.Models(ctx)
			if err != nil {
				return err
			}
			return t.show(list(models), func(w io.Writer) {
				for _, m := range models {
					state := "-"
					if m.Available {
						state = "available"
					}
					if m.Default {
						state = "default"
					}
					row(w, m.ID, state, strings.Join(m.Aliases, ","), m.Note)
				}
			})
		})
	cmd.AddCommand(verb("test [NAME]", "Ask a model for a word", between(0, 1),
		func(ctx context.Context, t *talk, c *client.Client, _ *cobra.Command, args []string) error {
			name := ""
			if len(args) == 1 {
				name = args[0]
			}
			r, err := c.TestModel(ctx, name)
			if err != nil {
				return err
			}
			if err := t.show(r, func(w io.Writer) {
				if r.OK {
					row(w, r.ID, "answers", fmt.Sprintf("%d ms", r.DurationMS))
				} else {
					row(w, r.ID, "fails", r.Error, r.Hint)
				}
			}); err != nil {
				return err
			}
			if !r.OK {
				return exitError(exitFailed)
			}
			return nil
		}))
	return cmd
}
