package cli

import (
	"context"
	"fmt"
	"runtime"

	"choir.dev/choiros/internal/cli/terminal"
)

// about is what version --json prints.
type about struct {
	Version  string `json:"version"`
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

func (p Program) line() string {
	return fmt.Sprintf("choir %s (%s, %s/%s)\n", p.Version, runtime.Version(), runtime.GOOS, runtime.GOARCH)
}

// About tells the version.
func (p Program) About() Verb {
	return Verb{
		Use: "version", Short: "Print the version", Args: Exactly(0), JSON: about{},
		Examples: []string{"choir version", "choir version --json"},
		Does: func(_ context.Context, t *Call, _ []string) error {
			if t.JSON {
				return terminal.PrintJSON(about{p.Version, runtime.Version(), runtime.GOOS + "/" + runtime.GOARCH})
			}
			_, err := fmt.Print(p.line())
			return err
		},
	}
}
