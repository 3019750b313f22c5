//go:build !embedguest

package main

import (
	"context"
	"os"

	"choir.dev/choiros/internal/guest"
	_ "choir.dev/choiros/internal/guest/early" // before anything else of a guest
	"choir.dev/choiros/internal/guest/kinds"
	_ "choir.dev/choiros/internal/sandbox/local/launch/stage"
)

// asGuest runs as the guest, and does not return, when the arguments are a guest's. This
// build carries no guest binary and is its own.
func asGuest(args []string) {
	if len(args) == 3 && args[1] == "guest" {
		os.Exit(guest.Main(context.Background(), args[2], kinds.Services()))
	}
}
