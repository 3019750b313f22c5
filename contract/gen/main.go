// Command gen writes what is published of the contract: its JSON Schemas, and
// the TypeScript types the desktop is compiled against. Run it through
// go generate ./contract; a test fails when its output is stale.
package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
)

func main() {
	root := flag.String("root", ".", "the repository's root")
	flag.Parse()
	if err := run(*root); err != nil {
		fmt.Fprintln(os.Stderr, "gen:", err)
		os.Exit(1)
	}
}

func run(root string) error {
	files, err := generate(root)
	if err != nil {
		return err
	}
	old, err := published(root)
	if err != nil {
		return err
	}
	for _, path := range old { // files that are no longer generated are removed
		if _, keep := files[path]; !keep {
			if err := os.Remove(filepath.Join(root, path)); err != nil {
				return err
			}
		}
	}
	for path, content := range files {
		full := filepath.Join(root, path)
		if err := os.MkdirAll(filepath.Dir(full), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(full, content, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// published lists the schema files there are, relative to root.
func published(root string) ([]string, error) {
	var out []string
	for _, pattern := range []string{"contract/schema/*.json", "contract/schema/data/*.json"} {
		names, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil {
			return nil, err
		}
		for _, n := range names {
			rel, err := filepath.Rel(root, n)
			if err != nil {
				return nil, err
			}
			out = append(out, filepath.ToSlash(rel))
		}
	}
	return out, nil
}

// generate returns every generated file by its path from the root.
func generate(root string) (map[string][]byte, error) {
	docs, err := readComments(root)
	if err != nil {
		return nil, err
	}
	files, err := schemas(docs)
	if err != nil {
		return nil, err
	}
	files["desktop/src/contract/contract.ts"] = typescript(docs)
	return files, nil
}
