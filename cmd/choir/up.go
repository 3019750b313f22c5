package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"

	"github.com/spf13/pflag"

	"choir.dev/choiros/internal/cli"
	"choir.dev/choiros/internal/client"
	"choir.dev/choiros/internal/config"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/fleet"
	"choir.dev/choiros/internal/recovery"
	"choir.dev/choiros/internal/view"
)

// upLine is what `choir up --json` prints, once, when it is healthy. When what is stored
// can't be opened, one with Stopped, and without link and token, comes first.
type upLine struct {
	URL      string `json:"url"`
	ClaimURL string `json:"claim_url,omitempty"`
	// Claimed is whether somebody has signed in as the owner before, so that the link only signs in.
	Claimed bool   `json:"claimed,omitempty"`
	Token   string `json:"token,omitempty"`
	PID     int    `json:"pid"`
	Data    string `json:"data"`
	// Stopped is why it is not up.
	Stopped *view.Refusal `json:"stopped,omitempty"`
}

func upVerb() cli.Verb {
	var listen, file string
	var noOpen, verbose bool
	return cli.Verb{
		Use: "up", Short: "Start everything on this machine and print a link", Args: cli.Exactly(0), JSON: upLine{}, Data: true,
		Long: `It runs until it is interrupted. With --json it prints one line of JSON when healthy, or
one with stopped in it when what is stored can't be opened; logs go to standard error.`,
		Examples: []string{"choir up", "choir up --data ~/choir-data --listen 127.0.0.1:7800 --no-open"},
		Flags: func(f *pflag.FlagSet) {
			f.StringVar(&listen, "listen", "", "`ADDR:PORT` to listen on")
			f.StringVar(&file, "config", "", "the configuration, a `FILE`")
			f.BoolVar(&noOpen, "no-open", false, "do not open a browser")
			f.BoolVarP(&verbose, "verbose", "v", false, "log more")
		},
		Does: func(ctx context.Context, t *cli.Call, _ []string) error {
			cfg, err := config.Load(t.Sources(file, map[string]string{"server.listen": listen}))
			if err != nil {
				return err
			}
			level := slog.LevelWarn
			if verbose {
				level = slog.LevelDebug
			}
			keeper := &logKeeper{}
			logger := keeper.logger(level)
			opened := func() {}
			defer func() { opened() }()
			return up(ctx, cfg, logger, newAnnouncer(t.JSON, keeper, func(line upLine) {
				if !noOpen {
					opened = openBrowser(cfg.Server.Data, line.ClaimURL, logger)
				}
			}))
		},
	}
}

// up runs the control plane until ctx ends. While what is stored can't be opened, it says
// so at the console's address.
func up(ctx context.Context, cfg config.Config, logger *slog.Logger, o announcer) error {
	if err := alreadyUp(cfg.Server.Data); err != nil {
		return err
	}
	var failed error // why a recovery that was asked for failed
	var token string // the token that was printed
	for {
		ln, err := listen(cfg.Server.Listen)
		if err != nil {
			return err
		}
		// If it starts anew, it listens where browsers already know it.
		cfg.Server.Listen = ln.Addr().String()
		open := func() (*plane, upLine, error) { return openAnnounced(ctx, cfg, ln, logger, failed, token, o) }
		p, line, err := open()
		if why, keeps := keepsUp(ctx, err); keeps {
			if p, line, err = serveStopped(ctx, cfg, ln, logger, why, o, open); err != nil {
				if p != nil { // it was opened, but the page that said why it was stopped did not end well
					err = errors.Join(err, p.Close())
				}
				return err
			}
			if ln, err = listen(cfg.Server.Listen); err != nil {
				return errors.Join(err, p.Close())
			}
		} else if err != nil {
			return errors.Join(why, ln.Close())
		}
		token = line.Token
		again, err := serve(ctx, p, ln, line, o)
		if err != nil || again == nil {
			return err
		}
		failed = nil
		if again.Recover {
			_, failed = recoverData(ctx, cfg, recovery.Options{Logger: logger, Histories: again.Histories, Only: again.Only})
		}
	}
}

// alreadyUp returns the error for a data directory that another choir has open. It is
// checked before listening, for the other one mostly has the address as well, and "address
// in use" does not say why. What it can't tell, the directory's lock decides.
func alreadyUp(data string) error {
	r, err := client.ReadRuntime(data)
	if err != nil {
		return nil
	}
	return fault.New("up", fault.InUse, "Open it with choir open, end it with choir stop, or start another with another --data.",
		fmt.Errorf("%s is in use: choir already runs there, at %s (process %d)", data, r.URL, r.PID))
}

// openAnnounced opens a control plane and makes its link. failed is why the recovery before
// did not succeed, which the console shows; token is the one that was printed before.
func openAnnounced(ctx context.Context, cfg config.Config, ln net.Listener, logger *slog.Logger, failed error, token string, o announcer) (*plane, upLine, error) {
	p, err := openPlane(ctx, cfg, ln, logger, failed, o)
	if err != nil {
		return nil, upLine{}, err
	}
	line, err := p.announce(ctx, token)
	if err != nil {
		return nil, upLine{}, stored{errors.Join(err, p.Close())}
	}
	return p, line, nil
}

// serve serves until ctx ends or a restart is requested, and closes p.
func serve(ctx context.Context, p *plane, ln net.Listener, line upLine, o announcer) (again *fleet.Restart, err error) {
	defer func() { err = errors.Join(err, p.Close()) }()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	served := make(chan error, 1)
	go func() { served <- p.server.Serve(ctx, ln) }()
	if err = healthy(ctx, line); err == nil {
		err = o.ready(line)
	}
	if err != nil {
		cancel()
		return nil, errors.Join(err, <-served)
	}
	select {
	case err = <-served:
	case r := <-p.restart:
		again = &r
		cancel()
		err = <-served
	}
	return again, errors.Join(err, client.RemoveRuntime(p.cfg.Server.Data))
}

// healthy requests /health once, as a client would.
func healthy(ctx context.Context, line upLine) error {
	c, err := client.New(line.URL, line.Token, "")
	if err != nil {
		return err
	}
	defer c.Close()
	return c.Healthy(ctx)
}
