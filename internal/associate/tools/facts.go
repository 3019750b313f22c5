package tools

import (
	"context"
	"encoding/json"

	"choir.dev/choiros/internal/associate/verify"
)

type factsArgs struct {
	Paths []string `json:"paths"`
}

func (b *Box) facts(_ context.Context, a factsArgs) (Result, error) {
	f, err := verify.Gather(b.root, a.Paths)
	if err != nil {
		return Result{}, err
	}
	data, err := json.Marshal(f)
	return Result{OK: err == nil, Data: data}, err
}
