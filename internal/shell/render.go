package shell

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"errors"
	"strings"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/defence"
	"choir.dev/choiros/internal/dispatch/ports"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/guest"
	"choir.dev/choiros/internal/sandbox"
	"choir.dev/choiros/internal/tail"
)

// renderScript builds the shell and opens it in a simulated document, without a browser. It
// is the host's, so that no task can change what is checked.
//
//go:embed render/render.mjs
var renderScript []byte

const (
	renderWall   = 120_000 // ms
	renderOutput = 16 << 10
)

// Render implements dispatch.Renderer, the third part of the shell's
// verification: the shell of the commit is built and
// opened in a verify box, without network, on a throwaway copy. What broke in
// the user's browser needs no second opinion.
func (s *Shell) Render(ctx context.Context, o ports.Overlay, commit string) (contract.Command, error) {
	tree, err := s.workspace.ObjectID(ctx, commit, "choiros")
	if err != nil && !fault.Is(err, fault.NotFound) {
		return contract.Command{}, err
	}
	if words := s.brokenShell(tree); words != "" {
		return contract.Command{Argv: []string{"desktop"}, ExitCode: 1, Stderr: "The desktop that was open broke with this source. " + words + "\n"}, nil
	}
	script, err := s.renderVolume(ctx)
	if err != nil {
		return contract.Command{}, fault.Wrap("shell.Render", err)
	}
	mounts, release, err := s.opts.VerifyMounts(ctx, o, commit)
	if err != nil {
		return contract.Command{}, err
	}
	defer release()
	box, err := s.opts.Box(ctx, sandbox.BoxSpec{
		ID: "render-" + contract.NewID(), Kind: contract.BoxVerify, Root: "/computer/choiros", Limits: s.opts.Limits(),
		Mounts: append(mounts, sandbox.Mount{Source: script, Target: "/render", Mode: sandbox.ReadOnly}),
	})
	if err != nil {
		return contract.Command{}, err
	}
	defer func() {
		if err := box.Kill(); err != nil {
			s.logger.Error("could not end a box", "box", box.ID(), "error", err)
		}
	}()
	argv := []string{"node", "/render/render.mjs", "/tmp/rendered"}
	out, errOut := tail.Writer{Max: renderOutput}, tail.Writer{Max: renderOutput}
	word := newWord()
	exit, err := guest.NewClient(box.Tether().Transport()).Exec(ctx, guest.ExecRequest{Argv: argv, Dir: "/computer/choiros", TimeoutMS: renderWall},
		guest.Streams{Stdin: strings.NewReader(word), Stdout: &out, Stderr: &errOut})
	if err != nil {
		return contract.Command{}, fault.Wrap("shell.Render", err)
	}
	return rendered(contract.Command{Argv: argv, ExitCode: exit.Code, DurationMS: exit.DurationMS, Stdout: out.String(), Stderr: errOut.String()}, word), nil
}

// renderVolume holds the script, under a name that is derived from its content.
func (s *Shell) renderVolume(ctx context.Context) (sandbox.Volume, error) {
	sum := sha256.Sum256(renderScript)
	name := "render/" + hex.EncodeToString(sum[:8])
	v := sandbox.SharedCache(name)
	if there, err := s.opts.Volumes.Exists(ctx, v); err != nil || there {
		return v, err
	}
	tmp := sandbox.SharedCache(name + "-" + contract.NewID()) // another computer may make the same one now
	if err := errors.Join(s.opts.Volumes.Make(ctx, tmp), s.opts.Volumes.Put(ctx, tmp, "render.mjs", renderScript, 0o644)); err != nil {
		return v, err
	}
	return v, s.opts.Volumes.Keep(ctx, tmp, v)
}

func newWord() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails since Go 1.24
	return hex.EncodeToString(b[:])
}

// rendered is the outcome of a render. The page under test ran in the program that judged
// it and may have ended that program with any exit code: only word shows that the program
// reached its last line.
func rendered(c contract.Command, word string) contract.Command {
	said, whole := strings.CutSuffix(c.Stdout, " "+word+"\n")
	c.Stdout = strings.ReplaceAll(said, word, "")
	if c.ExitCode == 0 && !whole && !defence.Off(defence.CheckRendered) {
		c.ExitCode = 1
		c.Stderr += "The page ended the check before it had painted.\n"
	}
	return c
}
