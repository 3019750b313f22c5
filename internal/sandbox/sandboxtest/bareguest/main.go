// Bareguest is a guest without services but one that tells of itself, so that tests of boxes need nothing of
// what runs in them.
package main

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"runtime"

	_ "choir.dev/choiros/internal/guest/early" // before anything else

	"choir.dev/choiros/internal/guest"
	"choir.dev/choiros/internal/process"
	"choir.dev/choiros/internal/sandbox/local/launch"
)

func main() {
	switch {
	case len(os.Args) == 3 && os.Args[1] == "guest":
		os.Exit(guest.Main(context.Background(), os.Args[2], guest.Services{New: services}))
	case len(os.Args) > 2 && os.Args[1] == "launch":
		os.Exit(launch.Main(os.Args[2:]))
	}
	os.Stderr.WriteString("usage: bareguest guest KIND\n")
	os.Exit(2)
}

// services has /processors say on how many the guest runs, and what its environment says of that; and
// /slack by how much the kernel may wake its threads late.
func services(context.Context, guest.ServiceEnv) (http.Handler, error) {
	mux := http.NewServeMux()
	mux.HandleFunc("/processors", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = fmt.Fprintf(w, "%d %q", runtime.GOMAXPROCS(0), os.Getenv("GOMAXPROCS"))
	})
	mux.HandleFunc("/slack", func(w http.ResponseWriter, _ *http.Request) {
		has, err := process.Slack()
		_, _ = fmt.Fprint(w, has, err)
	})
	return mux, nil
}
