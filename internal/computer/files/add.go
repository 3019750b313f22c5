package files

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"time"

	"golang.org/x/sys/unix"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/awake"
	"choir.dev/choiros/internal/computer/boxes"
	"choir.dev/choiros/internal/computer/shown"
	"choir.dev/choiros/internal/egress"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/guest"
	"choir.dev/choiros/internal/sandbox"
	"choir.dev/choiros/internal/view"
	"choir.dev/choiros/internal/workspace"
)

// addWall is how long bringing in one repository may take.
const addWall = 15 * time.Minute

// AddURL answers rpc.FilesAddURL: a scratch box clones the repository through
// egress, which lets it out to that one host, and hands it over as a tar
// stream. The remote is recorded on the host, so that later tasks may fetch.
func (f *Files) AddURL(ctx context.Context, by contract.Actor, r view.AddRequest) (view.Added, error) {
	const op = "files.AddURL"
	u, err := url.Parse(r.URL)
	if err != nil || u.Scheme != "https" || u.Hostname() == "" {
		return view.Added{}, fault.New(op, fault.Invalid, "Give an https:// URL, or clone it yourself and add the folder.",
			errors.New("only repositories at https:// URLs can be added"))
	}
	if u.User != nil {
		return view.Added{}, fault.New(op, fault.Invalid, "Clone it yourself and add the folder.", errors.New("the URL holds credentials"))
	}
	if err := f.options.Reserve.Check(op); err != nil {
		return view.Added{}, err
	}
	name := r.Name
	if name == "" {
		name = repositoryName(u)
	}
	port := u.Port()
	if port == "" {
		port = "443"
	}
	// The user named this host, and the box reaches no other.
	host, err := egress.ParseRule(net.JoinHostPort(u.Hostname(), port))
	if err != nil {
		return view.Added{}, fault.New(op, fault.Invalid, "", err)
	}
	ctx, cancel := awake.WithTimeout(ctx, addWall)
	defer cancel()
	id := "add-" + contract.NewID()
	empty := sandbox.Output(id)
	if err := f.options.Boxes.Volumes().Make(ctx, empty); err != nil {
		return view.Added{}, fault.Wrap(op, err)
	}
	defer f.options.Boxes.Discard(ctx, empty)
	limits := f.options.Boxes.Limits()
	limits.DiskBytes, limits.WallTime = int64(f.options.AddMB)<<20, addWall
	box, err := f.options.Boxes.Open(ctx, sandbox.BoxSpec{
		ID: id, Kind: contract.BoxScratch, Root: "/clone", Proxy: true, Limits: limits,
		Mounts: []sandbox.Mount{{Target: "/clone", Mode: sandbox.Overlay, Lower: []sandbox.Volume{empty}}},
		Handler: f.options.Boxes.Way(ctx, egress.Scope{Box: id, Kind: contract.BoxScratch},
			contract.EgressSpec{Profile: contract.EgressCustom, Allow: []string{host.String()}}, nil, host),
	})
	if err != nil {
		return view.Added{}, err
	}
	defer func() {
		if err := box.Kill(); err != nil {
			f.options.Logger.Error("could not end a scratch box", "box", id, "error", err)
		}
	}()
	in := boxes.Client(box)
	_, stderr, exit, err := in.Output(ctx, 8<<10, "sh", "-c", `trap "" XFSZ; exec "$@"`, "sh", // git then reports that a file is too large
		"git", "-c", "core.hooksPath=/dev/null", "clone", "--quiet", "--no-recurse-submodules", "--", r.URL, "/clone/repository")
	if err != nil {
		return view.Added{}, fault.Wrap(op, f.tooLargeToAdd(box, err))
	}
	if tooLargeFile(exit, stderr) {
		return view.Added{}, fault.Wrap(op, f.largerThanAdd())
	}
	if exit.Code != 0 {
		return view.Added{}, fault.New(op, fault.Unavailable, "Check the URL; a private repository can be cloned by yourself and added as a folder.",
			fmt.Errorf("git clone ended with code %d: %s", exit.Code, contract.Clip(string(stderr), 1000)))
	}
	pr, pw := io.Pipe()
	sent := make(chan error, 1)
	go func() {
		exit, err := in.Exec(ctx, guest.ExecRequest{Argv: []string{"tar", "-cf", "-", "-C", "/clone/repository", "."}}, guest.Streams{Stdout: pw, Stderr: io.Discard})
		if err == nil && exit.Code != 0 {
			err = fmt.Errorf("tar ended with code %d", exit.Code)
		}
		pw.CloseWithError(err)
		sent <- err
	}()
	im, err := f.options.Workspace.Add(ctx, workspace.AddRequest{Name: name, Origin: r.URL, Remote: r.URL, By: by}, f.options.Reserve.Taking(op, pr))
	pr.CloseWithError(errors.New("no longer read"))
	if err = errors.Join(err, <-sent); err != nil {
		return view.Added{}, fault.Wrap(op, f.tooLargeToAdd(box, err))
	}
	return view.Added{ID: im.Path.Shown(), Origin: r.URL, Remote: r.URL, Commit: im.Commit, Files: im.Files, Bytes: im.Bytes, Skipped: im.Skipped, Unkept: shown.Unkept(im.LeftOut), Sequence: f.options.Log.Last()}, nil
}

// tooLargeToAdd explains what to do if a clone's box ended because of its size; other
// errors are returned unchanged.
func (f *Files) tooLargeToAdd(box sandbox.Box, err error) error {
	var ended *sandbox.EndedError
	if !fault.Is(err, fault.Unavailable) || !boxes.Ended(box) || !errors.As(box.Err(), &ended) || ended.Reason != sandbox.DiskFull {
		return err
	}
	if free, ferr := f.options.Free(); ferr == nil && free.Scarce() {
		return fault.New("", fault.DiskFull, fault.FreeSpace, errors.New("the disk is nearly full; nothing of it was brought in"))
	}
	return f.largerThanAdd()
}

func (f *Files) largerThanAdd() error {
	return fault.New("", fault.Exhausted, "Raise storage.add_mb, or clone it yourself and add it in several smaller folders.",
		fmt.Errorf("it has more than %d MiB, or very many files; nothing of it was brought in", f.options.AddMB))
}

// tooLargeFile says whether git met a file larger than the limit on the whole, which the
// box does not let it write.
func tooLargeFile(exit guest.Exit, stderr []byte) bool {
	return exit.Code != 0 && bytes.Contains(bytes.ToLower(stderr), []byte(unix.EFBIG.Error()))
}
