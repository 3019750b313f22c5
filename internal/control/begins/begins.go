// Package begins gives a new computer what it begins with, of what is only known once somebody comes.
package begins

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"reflect"
	"time"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/contract/themes"
	"choir.dev/choiros/internal/rpc"
	"choir.dev/choiros/internal/view"
)

// Computer is a new computer, awake.
type Computer interface {
	Methods() rpc.Table
	OpenFile(ctx context.Context, path string) (io.ReadCloser, view.File, error)
	PutFile(ctx context.Context, by contract.Actor, put view.Put, content io.Reader) (view.File, error)
}

// patience is how long somebody who came waits for a theme.
const patience = 10 * time.Second

// As gives a new computer the theme of a scheme, if it has the other one that new ones have, with a checkpoint behind it.
func As(ctx context.Context, cid contract.CID, c Computer, by contract.Actor, scheme string) error {
	theme, ok := themes.Of(scheme)
	if !ok || theme.Scheme == themes.All()[0].Scheme {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	f, file, err := c.OpenFile(ctx, contract.ThemePath)
	if err != nil {
		return err
	}
	is, err := io.ReadAll(io.LimitReader(f, contract.MaxTheme+1))
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	if was, err := contract.DecodeTheme(is); err != nil || file.Version == "" || !reflect.DeepEqual(was, themes.All()[0]) {
		return nil // somebody has chosen one
	}
	b, err := json.MarshalIndent(theme, "", "  ")
	if err != nil {
		return err
	}
	if _, err = c.PutFile(ctx, by, view.Put{Path: contract.ThemePath, If: file.Version}, bytes.NewReader(append(b, '\n'))); err != nil {
		return err
	}
	// Who goes back to before all that he did comes back to this theme, too.
	var asked rpc.CheckpointRequest
	asked.Body.Message = "Begins with " + theme.Name + ", as the system"
	_, err = rpc.CheckpointCreate.Ask(ctx, c.Methods(), rpc.Caller{Computer: cid, Actor: by}, asked)
	return err
}
