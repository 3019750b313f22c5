// Package sheets answers what the console's sheets ask of the control plane and nothing else does: who is signed in, a
// link for one more browser, and to stop.
package sheets

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"rsc.io/qr"

	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/identity"
	"choir.dev/choiros/internal/rpc"
	"choir.dev/choiros/internal/view"
)

// Options are what the methods need of the control plane.
type Options struct {
	Identity *identity.Store
	// Caller returns the id of the session that a request is of.
	Caller func(ctx context.Context) string
	// Link makes a one-time sign-in link for an account, as long as the session that asks has not ended.
	Link func(ctx context.Context, account, session string) (view.Link, error)
	// End ends what sessions have open.
	End func(ids []string) error
	// Stop has the process end as by a signal; nil where nothing can be stopped.
	Stop func() error
}

// Bind binds the methods.
func Bind(t rpc.Table, o Options) {
	rpc.Bind(t, rpc.SessionList, func(ctx context.Context, who rpc.Caller, _ rpc.Nothing) (rpc.List[view.Browser], error) {
		list, err := o.Identity.SignedIn(ctx, who.Actor.Account())
		out := make([]view.Browser, len(list))
		for i, s := range list {
			out[i] = view.Browser{ID: s.ID, Device: s.Device, Since: s.Created, Used: s.Used, Expires: s.Expires, This: s.ID == o.Caller(ctx)}
		}
		return rpc.Listed(out, false, err)
	})
	rpc.Bind(t, rpc.SessionEnd, func(ctx context.Context, who rpc.Caller, in rpc.OnSession) (rpc.None, error) {
		ended, err := o.Identity.EndSession(ctx, who.Actor.Account(), in.Session)
		if err != nil {
			return rpc.None{}, err
		}
		return rpc.Done(o.End(ended))
	})
	rpc.Bind(t, rpc.SessionLink, func(ctx context.Context, who rpc.Caller, _ rpc.Nothing) (view.DeviceLink, error) {
		link, err := o.Link(ctx, who.Actor.Account(), who.Session)
		if err != nil {
			return view.DeviceLink{}, err
		}
		code, err := code(link.URL)
		return view.DeviceLink{Link: link, QR: code}, err
	})
	rpc.Bind(t, rpc.SystemStop, func(context.Context, rpc.Caller, rpc.Nothing) (rpc.None, error) {
		if o.Stop == nil {
			return rpc.None{}, fault.New("", fault.Unavailable, "Stop it where it was started.", errors.New("this control plane can't be stopped from here"))
		}
		return rpc.Done(o.Stop())
	})
}

// quiet is the free edge that readers need around a code, in modules.
const quiet = 4

// code makes the QR code of a text: one part of a path for each run of dark modules.
func code(text string) (view.QR, error) {
	c, err := qr.Encode(text, qr.M)
	if err != nil {
		return view.QR{}, fault.New("", fault.Internal, "", fmt.Errorf("a QR code: %w", err))
	}
	var b strings.Builder
	for y := range c.Size {
		for x := 0; x < c.Size; x++ {
			n := 0
			for c.Black(x+n, y) {
				n++
			}
			if n > 0 {
				fmt.Fprintf(&b, "M%d %dh%dv1h-%dz", x+quiet, y+quiet, n, n)
				x += n
			}
		}
	}
	return view.QR{Size: c.Size + 2*quiet, Path: b.String()}, nil
}
