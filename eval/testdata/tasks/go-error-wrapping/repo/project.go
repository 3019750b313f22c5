// Package config reads files of KEY=VALUE lines.
package config

import (
	"errors"
	"os"
	"strings"
)

// SyntaxError is a line that is no assignment.
type SyntaxError struct {
	File string
	Line int
}

func (e *SyntaxError) Error() string { return "syntax error" }

// Load reads a file. Empty lines and lines that begin with # are skipped.
func Load(path string) (map[string]string, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, errors.New("cannot read configuration")
	}
	out := map[string]string{}
	for _, line := range strings.Split(string(b), "\n") {
		if line == "" || line[0] == '#' {
			continue
		}
		key, value, ok := strings.Cut(line, "=")
		if !ok {
			return nil, errors.New("bad line")
		}
		out[key] = value
	}
	return out, nil
}
