package verbs

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

	"github.com/spf13/pflag"

	"choir.dev/choiros/internal/cli"
	"choir.dev/choiros/internal/cli/terminal"
	"choir.dev/choiros/internal/client"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/view"
)

// Add is choir add.
func Add() cli.Verb {
	var name string
	return cli.Verb{
		Use: "add URL|LOCAL", Short: "Bring a folder or a repository into workspace/", Args: cli.Exactly(1), JSON: view.Added{},
		Examples: []string{"choir add ./my-project", "choir add https://example.org/project.git --name project"},
		Asks: func(ctx context.Context, t *cli.Call, c *client.Client, args []string) error {
			added, err := add(ctx, c, args[0], name)
			if err != nil {
				return err
			}
			return t.Show(added, func(w io.Writer) {
				what := fmt.Sprintf("%d files, %d bytes", added.Files, added.Bytes)
				if added.Skipped > 0 {
					what += fmt.Sprintf("; %d left out", added.Skipped)
				}
				terminal.Row(w, "added", added.ID, what)
				printUnkept(w, added.Unkept)
			})
		},
		Flags: func(f *pflag.FlagSet) {
			f.StringVar(&name, "name", "", "`NAME` of the folder under workspace/; by default the last part of URL or LOCAL")
		},
	}
}

func add(ctx context.Context, c *client.Client, what, name string) (view.Added, error) {
	if strings.Contains(what, "://") || (strings.Contains(what, "@") && strings.Contains(what, ":")) {
		p := terminal.NewProgress("cloning", 0)
		defer p.End()
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
	go func() { // it ends when AddTar has read everything or r is closed
		err := writeTar(w, dir, func(p, kind string) {
			left.Files++
			if len(left.Paths) < maxLeftHere {
				left.Paths = append(left.Paths, view.UnkeptPath{Path: "workspace/" + name + "/" + p, Reason: "is a " + kind + ", and was not brought in"})
			}
		})
		w.CloseWithError(err)
		packed <- err
	}()
	p := terminal.NewProgress("bringing in "+name, 0)
	defer p.End()
	added, err := c.AddTar(ctx, name, "file://"+dir, p.Of(r))
	_ = r.CloseWithError(errNotTaken) // never fails
	if perr := <-packed; perr != nil && !errors.Is(perr, errNotTaken) && !errors.Is(perr, io.ErrClosedPipe) {
		return view.Added{}, fault.New("add", fault.Invalid, "Nothing of it was brought in. If somebody is changing it, try again once it rests.", fmt.Errorf("read %s: %w", dir, perr))
	}
	// What could not be packed is missing just as what was not accepted.
	added.Skipped += left.Files
	added.Unkept.Files += left.Files
	added.Unkept.Paths = append(cli.List(left.Paths), added.Unkept.Paths...)
	return added, err
}

// maxLeftHere bounds how many unpacked paths are listed.
const maxLeftHere = 50

var errNotTaken = errors.New("the rest is not wanted")

// writeTar packs a folder: names, bytes, executable bits and symlinks unchanged; sockets,
// pipes and devices are left out and passed to left.
func writeTar(w io.Writer, dir string, left func(path, kind string)) error {
	tw := tar.NewWriter(w)
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	if err := packDir(tw, root, "", left); err != nil {
		return err // without the archive's end, as it is not complete
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

// kindOf names a thing that is neither a file nor a folder nor a link.
func kindOf(m fs.FileMode) string {
	switch {
	case m&fs.ModeNamedPipe != 0:
		return "fifo"
	case m&fs.ModeSocket != 0:
		return "socket"
	}
	return "device"
}
