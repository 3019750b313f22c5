// Package uploads says where a file goes that a desktop's page brings in.
package uploads

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path"
	"strings"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/view"
)

const (
	most    = 100 // how many files may share one name
	maxName = 255 // as file systems have it
)

// Computer lists what is at a path.
type Computer interface {
	ListFiles(ctx context.Context, path, after string, limit int) ([]view.File, error)
}

// Check refuses a folder or a name that no file of a page may have. An empty folder is the workspace's root.
func Check(folder, name string) error {
	if err := view.ValidName("name", name); err != nil {
		return err
	}
	if folder != "" {
		if err := contract.ValidPath("folder", folder); err != nil {
			return err
		}
	}
	if len(name) > maxName {
		return &contract.FieldError{Field: "name", Reason: "is too long"}
	}
	return nil
}

// FreeName returns a path in a folder that nothing has.
func FreeName(ctx context.Context, c Computer, folder, name string) (string, error) {
	ext := path.Ext(name)
	stem := strings.TrimSuffix(name, ext)
	if stem == "" { // .profile
		stem, ext = name, ""
	}
	for n := 1; n <= most; n++ {
		at := path.Join(folder, name)
		if n > 1 {
			number := fmt.Sprintf("-%d%s", n, ext)
			at = path.Join(folder, contract.Clip(stem, maxName-len(number))+number)
		}
		switch _, err := c.ListFiles(ctx, at, "", 1); {
		case fault.Is(err, fault.NotFound):
			return at, nil
		case err != nil:
			return "", err
		}
	}
	return "", fault.New("", fault.Conflict, "Give it another name.", errors.New("there are too many files of this name in "+cmp.Or(folder, "the workspace")))
}
