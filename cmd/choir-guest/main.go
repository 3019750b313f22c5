// Choir-guest is process 1 of a box. It is a program of its own, and not only a verb of
// choir, because a box must start in milliseconds and choir's dependencies take longer than
// that to initialise. See docs/adr/0021.
//
// A box sees no control groups, so the runtime needs not look for processor limits in them.
//
//go:debug containermaxprocs=0
//go:debug updatemaxprocs=0
package main

import (
	"context"
	"fmt"
	"os"

	_ "choir.dev/choiros/internal/guest/early" // before anything else
	_ "choir.dev/choiros/internal/sandbox/local/launch/stage"

	"choir.dev/choiros/internal/guest"
)

func main() {
	if len(os.Args) == 3 && os.Args[1] == "guest" {
		os.Exit(guest.Main(context.Background(), os.Args[2], services()))
	}
	fmt.Fprintln(os.Stderr, "usage: choir-guest guest KIND (started by choir, inside a box)")
	os.Exit(2)
}
