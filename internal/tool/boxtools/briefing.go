package boxtools

import (
	"context"
	"encoding/json"
	"errors"
	"path/filepath"
	"strings"
	"time"

	"choir.dev/choiros/internal/associate/brief"
)

type briefingArgs struct {
	About    string `json:"about"`
	Programs bool   `json:"programs"`
}

// briefingTime bounds what a loop waits for before its first turn.
const briefingTime = 2 * time.Second

func (b *Box) briefing(ctx context.Context, a briefingArgs) (Result, error) {
	quiet := func(ctx context.Context, argv []string, dir string, env ...string) (string, error) {
		cmd, why := b.exec(ctx, argv, dir, nil, briefingTime, env...)
		if cmd.ExitCode != 0 || why != "" {
			return "", errors.New(strings.TrimSpace(cmd.Stderr + " " + why))
		}
		return cmd.Stdout + cmd.Stderr, nil // some programs write their version to standard error
	}
	o := brief.Options{Root: b.root, About: a.About, Within: briefingTime,
		Git: func(ctx context.Context, dir string, args ...string) (string, error) {
			return quiet(ctx, append([]string{"git"}, args...), filepath.Join(b.dir, dir), gitEnv()...)
		}}
	if a.Programs {
		o.Version = func(ctx context.Context, argv ...string) (string, error) { return quiet(ctx, argv, "/tmp") }
	}
	data, err := json.Marshal(brief.Gather(ctx, o))
	return Result{OK: err == nil, Data: data}, err
}
