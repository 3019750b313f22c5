package cli

import (
	"context"
	"fmt"
	"runtime"

	"github.com/spf13/cobra"

	"choir.dev/choiros/internal/cli/terminal"
)

// versionInfo is what version --json prints.
type versionInfo struct {
	Version  string `json:"version"`
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

func (p Program) line() string {
	return fmt.Sprintf("choir %s (%s, %s/%s)\n", p.Version, runtime.Version(), runtime.GOOS, runtime.GOARCH)
}

// versionFlag makes root print the version when it is called with --version. The
// library would, by a template, and a program that links those keeps every method
// of every type that it links: a template may name any of them.
func (p Program) versionFlag(root *cobra.Command) {
	asked := root.Flags().BoolP("version", "v", false, "version for "+root.Name())
	refuse, show := root.Args, root.RunE
	root.Args = func(cmd *cobra.Command, args []string) error {
		if *asked {
			return nil
		}
		return refuse(cmd, args)
	}
	root.RunE = func(cmd *cobra.Command, args []string) error {
		if !*asked {
			return show(cmd, args)
		}
		_, err := fmt.Print(p.line())
		return err
	}
}

// About tells the version.
func (p Program) About() Verb {
	return Verb{
		Use: "version", Short: "Print the version", Args: Exactly(0), JSON: versionInfo{},
		Examples: []string{"choir version", "choir version --json"},
		Does: func(_ context.Context, t *Call, _ []string) error {
			if t.JSON {
				return terminal.PrintJSON(versionInfo{p.Version, runtime.Version(), runtime.GOOS + "/" + runtime.GOARCH})
			}
			_, err := fmt.Print(p.line())
			return err
		},
	}
}
