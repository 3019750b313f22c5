package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"

	"github.com/spf13/cobra"

	"choir.dev/choiros/internal/client"
	"choir.dev/choiros/internal/computer"
	"choir.dev/choiros/internal/config"
	"choir.dev/choiros/internal/recovery"
)

// upLine is what `choir up --json` prints, once, when it is healthy.
type upLine struct {
	URL      string `json:"url"`
	ClaimURL string `json:"claim_url"`
	Token    string `json:"token"`
	PID      int    `json:"pid"`
	Data     string `json:"data"`
}

func upCmd() *cobra.Command {
	var data, listen, file string
	var noOpen, asJSON, verbose bool
	cmd := &cobra.Command{
		Use: "up", Short: "Start everything on this machine and print a link", Args: exactly(0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			flags := map[string]any{}
			if cmd.Flags().Changed("data") {
				flags["server.data"] = data
			}
			if cmd.Flags().Changed("listen") {
				flags["server.listen"] = listen
			}
			cfg, err := config.Load(config.Sources{File: file, Environ: os.Environ(), Flags: flags})
			if err != nil {
				return err
			}
			level := slog.LevelWarn
			if verbose {
				level = slog.LevelDebug
			}
			logger := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: level}))
			opened := func() {}
			defer func() { opened() }()
			return up(cmd.Context(), cfg, logger, func(line upLine) error {
				if asJSON {
					return json.NewEncoder(os.Stdout).Encode(line)
				}
				fmt.Printf("ChoirOS %s is up. Open this link once to make the computer yours:\n\n  %s\n\nStop it with Ctrl-C.\n", version, line.ClaimURL)
				if !noOpen {
					opened = openBrowser(cfg.Server.Data, line.ClaimURL, logger)
				}
				return nil
			})
		},
	}
	cmd.Flags().StringVar(&data, "data", "", "data directory")
	cmd.Flags().StringVar(&listen, "listen", "", "ADDR:PORT to listen on")
	cmd.Flags().StringVar(&file, "config", "", "configuration file")
	cmd.Flags().BoolVar(&noOpen, "no-open", false, "do not open a browser")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one line of JSON when healthy; logs go to stderr")
	cmd.Flags().BoolVarP(&verbose, "verbose", "v", false, "log more")
	return cmd
}

// up runs the control plane until ctx ends. ready is called once it answers.
func up(ctx context.Context, cfg config.Config, logger *slog.Logger, ready func(upLine) error) error {
	var failed error // of a recovery that was asked for
	var token string // once it was said
	for {
		ln, err := listen(cfg.Server.Listen)
		if err != nil {
			return err
		}
		// Should it start anew, then where browsers know it.
		cfg.Server.Listen = ln.Addr().String()
		again, err := serve(ctx, cfg, ln, logger, failed, token, func(line upLine) error { token = line.Token; return ready(line) })
		if err != nil || again == nil {
			return err
		}
		failed = nil
		if again.Recover {
			_, failed = recoverData(ctx, cfg, recovery.Options{Logger: logger, Histories: again.Histories, Only: again.Only})
		}
		ready = func(upLine) error { return nil } // said before
	}
}

// serve opens a control plane and serves until ctx ends, or it is to be started
// anew. failed is why a recovery before did not succeed, which the console says;
// token is the one that was said before.
func serve(ctx context.Context, cfg config.Config, ln net.Listener, logger *slog.Logger, failed error, token string, ready func(upLine) error) (again *computer.Restart, err error) {
	defer ln.Close() // closed by Serve; again where Serve was not reached
	p, err := openPlane(ctx, cfg, ln, logger, failed)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, p.Close()) }()

	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	served := make(chan error, 1)
	go func() { served <- p.server.Serve(ctx, ln) }()
	line, err := p.announce(ctx, token)
	if err == nil {
		err = ready(line)
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
	return again, errors.Join(err, client.RemoveRuntime(cfg.Server.Data))
}
