// Command gen writes the desktop's TypeScript types of the methods that a desktop may call.
// Run it through go generate ./internal/rpc; a test fails when its output is stale.
package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
)

// output is the generated file, from the repository's root.
const output = "desktop/src/link/services.ts"

func main() {
	root := flag.String("root", ".", "the repository's root")
	flag.Parse()
	if err := run(*root); err != nil {
		fmt.Fprintln(os.Stderr, "gen:", err)
		os.Exit(1)
	}
}

func run(root string) error {
	b, err := generate(root)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(root, output), b, 0o644)
}
