// Package stage runs the launcher of a guest binary before the packages that only guests
// use are initialised, which would take as long as all that the launcher does. Import it,
// for its effect, from the main package of such a binary.
package stage

import (
	"os"

	"choir.dev/choiros/internal/sandbox/local/launch"
)

func init() {
	if len(os.Args) > 2 && os.Args[1] == "launch" {
		os.Exit(launch.Main(os.Args[2:]))
	}
}
