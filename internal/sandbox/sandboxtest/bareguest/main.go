// Bareguest is a guest without services, so that tests of boxes need nothing of
// what runs in them.
package main

import (
	"context"
	"os"

	_ "choir.dev/choiros/internal/guest/early" // before anything else

	"choir.dev/choiros/internal/guest"
	"choir.dev/choiros/internal/sandbox/local/launch"
)

func main() {
	switch {
	case len(os.Args) == 3 && os.Args[1] == "guest":
		os.Exit(guest.Main(context.Background(), os.Args[2], guest.Services{}))
	case len(os.Args) > 2 && os.Args[1] == "launch":
		os.Exit(launch.Main(os.Args[2:]))
	}
	os.Stderr.WriteString("usage: bareguest guest KIND\n")
	os.Exit(2)
}
