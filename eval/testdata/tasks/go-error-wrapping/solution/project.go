// Package config reads files of KEY=VALUE lines.
package config

import (
	"fmt"
	"os"
	"strings"
)

// SyntaxError is a line that is no assignment.
type SyntaxError struct {
	File string
	Line int
}

func (e *SyntaxError) Error() string { return fmt.Sprintf("%s:%d: want KEY=VALUE", e.File, e.Line) }

// Load reads a file. Empty lines and lines that begin with # are skipped.
func Load(path string) (map[string]string, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read configuration: %w", err)
	}
	out := map[string]string{}
	for i, line := range strings.Split(string(b), "\n") {
		if line = strings.TrimSpace(line); line == "" || line[0] == '#' {
			continue
		}
		key, value, ok := strings.Cut(line, "=")
		if !ok {
			return nil, &SyntaxError{path, i + 1}
		}
		out[strings.TrimSpace(key)] = strings.TrimSpace(value)
	}
	return out, nil
}
