package runspace

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/computer/boxes"
	"choir.dev/choiros/internal/dispatch/ports"
	"choir.dev/choiros/internal/egress"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/guest"
	"choir.dev/choiros/internal/sandbox"
	"choir.dev/choiros/internal/webpage"
)

// pages reads pages of the web and sends requests, each in a box of its own.
type pages struct {
	boxes Boxes
}

// Pages is what reads pages of the web, nil in a build that carries no reader.
func (b Boxes) Pages() ports.Pages {
	if b.Boxes.Reader().Name == "" {
		return nil
	}
	return pages{b}
}

const (
	readerInside = "/reader"
	readerName   = "choir-reader"
	readerWall   = time.Minute
	readerMemory = 768 << 20
)

// Fetch implements ports.Pages: it starts the reader in a box that has the reader, the machine's programs and
// nothing of the computer's, and that is let out to the page's host and port alone.
func (p pages) Fetch(ctx context.Context, r ports.PageRequest) (webpage.Page, error) {
	const op = "runspace.Fetch"
	out, _, err := p.read(ctx, r, webpage.Request{URL: r.Address.URL})
	if err != nil {
		return webpage.Page{}, fault.Wrap(op, err)
	}
	page, err := webpage.Decode(out)
	if err != nil {
		return page, fault.New(op, fault.Invalid, "", err)
	}
	return page, nil
}

// Send implements ports.Pages, in a box like that in which a page is read.
func (p pages) Send(ctx context.Context, r ports.SendRequest) (webpage.Answer, error) {
	const op = "runspace.Send"
	out, began, err := p.read(ctx, ports.PageRequest{Run: r.Run, Task: r.Task, Address: r.Address, Decided: r.Decided}, webpage.Request{Send: &r.Sending})
	if !began {
		return webpage.Answer{}, fault.Wrap(op, err)
	}
	a, bad := webpage.DecodeAnswer(out)
	if err := cmp.Or(err, bad); err != nil {
		// What it said last is what is known. It may have died before it could say more, also of what it had not sent.
		a.Sent, a.Whole, a.Failed = true, false, webpage.Line("its box ended: "+fault.Text(err), 400)
	}
	return a, nil
}

// read has the reader do what is asked of it, and returns what it wrote, also where it did not end well. began is false if it
// was not started.
func (p pages) read(ctx context.Context, r ports.PageRequest, asked webpage.Request) (answer []byte, began bool, err error) {
	const op = "runspace.read"
	rule, err := egress.ParseRule(r.Address.Target())
	if err != nil {
		return nil, false, fault.New(op, fault.Invalid, "", err)
	}
	request, err := json.Marshal(asked)
	if err != nil {
		return nil, false, fault.Wrap(op, err)
	}
	program, err := p.program(ctx)
	if err != nil {
		return nil, false, fault.Wrap(op, err)
	}
	b := p.boxes.Boxes
	id := "page-" + contract.Nonce()
	limits := b.Limits()
	limits.WallTime, limits.MemoryBytes, limits.Pids = readerWall, min(limits.MemoryBytes, readerMemory), min(limits.Pids, 128)
	box, err := b.Open(ctx, sandbox.BoxSpec{
		ID: id, Kind: contract.BoxScratch, Proxy: true, Limits: limits,
		Mounts: []sandbox.Mount{{Source: program, Target: readerInside, Mode: sandbox.ReadOnly}},
		Handler: b.Way(p.boxes.Awake, egress.Scope{Run: r.Run, Task: r.Task, Box: id, Kind: contract.BoxScratch},
			contract.EgressSpec{Profile: contract.EgressCustom, Allow: []string{rule.String()}}, r.Decided, rule),
	})
	if err != nil {
		return nil, false, fault.Wrap(op, err)
	}
	defer func() {
		if err := box.Kill(); err != nil {
			p.boxes.Logger.Error("could not end a box that read a page", "box", id, "error", err)
		}
	}()
	var out, said bytes.Buffer
	exit, err := boxes.Client(box).Exec(ctx, guest.ExecRequest{Argv: []string{readerInside + "/" + readerName}, Stdin: true, HeadBytes: webpage.MaxAnswer},
		guest.Streams{Stdin: bytes.NewReader(request), Stdout: &out, Stderr: &said})
	switch {
	case err != nil && boxes.Ended(box):
		err = fault.New(op, fault.Exhausted, "", fmt.Errorf("reading it took more than a box may use: %w", box.Err()))
	case err != nil:
		err = fault.Wrap(op, err)
	case exit.Code != 0:
		err = fault.New(op, fault.Unavailable, "", fmt.Errorf("the reader ended with code %d: %s", exit.Code, webpage.Line(said.String(), 300)))
	case exit.StdoutDropped > 0:
		err = fault.New(op, fault.Exhausted, "", errors.New("the reader answers too much"))
	}
	return out.Bytes(), true, err
}

// program is the volume with the reader, under a name that is derived from its content.
func (p pages) program(ctx context.Context) (sandbox.Volume, error) {
	reader, volumes := p.boxes.Boxes.Reader(), p.boxes.Boxes.Volumes()
	v := sandbox.SharedCache("reader/" + reader.Name)
	if there, err := volumes.Exists(ctx, v); err != nil || there {
		return v, err
	}
	binary, err := reader.Binary()
	if err != nil {
		return v, err
	}
	tmp := sandbox.SharedCache("reader/" + reader.Name + "-" + contract.NewID()) // another computer may make the same one now
	if err := errors.Join(volumes.Make(ctx, tmp), volumes.Put(ctx, tmp, readerName, binary, 0o555)); err != nil {
		return v, err
	}
	return v, volumes.Keep(ctx, tmp, v)
}
