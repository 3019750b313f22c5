// Package kinds says what the guest of each kind of box serves beside commands,
// terminals and files. It must not import NATS or SQLite: it is part of the
// small guest binary.
package kinds

import (
	"context"
	"net/http"
	"os"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/associate"
	"choir.dev/choiros/internal/crash"
	"choir.dev/choiros/internal/director"
	"choir.dev/choiros/internal/guest"
	"choir.dev/choiros/internal/tool/boxtools"
	"choir.dev/choiros/internal/workspace/keeper/engine"
	"choir.dev/choiros/internal/workspace/keeper/httpapi"
	"choir.dev/choiros/internal/workspace/keeper/wire"
)

// Services returns the services of all kinds of guests.
func Services() guest.Services { return guest.Services{New: serve} }

func serve(ctx context.Context, in guest.ServiceEnv) (http.Handler, error) {
	switch in.Kind {
	case contract.BoxDirector:
		return director.Handler(director.Options{Client: in.Host}), nil
	case contract.BoxAssociate:
		return associate.Handler(associate.Options{Client: in.Host}), nil
	case contract.BoxKeeper:
		// A guest's own environment is empty, but the engine must find git.
		if err := os.Setenv("PATH", in.Runner.Env["PATH"]); err != nil {
			return nil, err
		}
		limits, err := wire.LimitsFrom(in.Runner.Env)
		if err != nil {
			return nil, err
		}
		e, err := engine.Open(ctx, engine.Options{Root: in.Root, Snapshots: "/snapshots", Uppers: "/uppers", Limits: limits, Crash: crash.At})
		if err != nil {
			return nil, err
		}
		return httpapi.Handler(e), nil
	case contract.BoxTask, contract.BoxVerify:
		env := make([]string, 0, len(in.Runner.Env))
		for k, v := range in.Runner.Env {
			env = append(env, k+"="+v)
		}
		return boxtools.New(boxtools.Options{Root: in.Root, Env: env, Base: contract.BaseInBox})
	}
	return http.NotFoundHandler(), nil
}
