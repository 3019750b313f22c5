package order

import (
	"fmt"
	"slices"
	"strings"
)

// CycleError is a target that depends on itself.
type CycleError struct {
	Path []string // from the target to itself
}

func (e *CycleError) Error() string { return "cycle: " + strings.Join(e.Path, " -> ") }

// Sort returns all targets, each after what it depends on, and otherwise by name. It fails with a
// *CycleError.
func Sort(deps map[string][]string) ([]string, error) {
	var out, path []string
	done := map[string]bool{}
	var visit func(string) error
	visit = func(target string) error {
		if done[target] {
			return nil
		}
		if i := slices.Index(path, target); i >= 0 {
			return &CycleError{append(slices.Clone(path[i:]), target)}
		}
		path = append(path, target)
		for _, d := range sorted(deps[target]) {
			if err := visit(d); err != nil {
				return err
			}
		}
		path = path[:len(path)-1]
		done[target] = true
		out = append(out, target)
		return nil
	}
	names := make([]string, 0, len(deps))
	for target := range deps {
		names = append(names, target)
	}
	for _, target := range sorted(names) {
		if err := visit(target); err != nil {
			return nil, fmt.Errorf("sort targets: %w", err)
		}
	}
	return out, nil
}

func sorted(names []string) []string {
	out := slices.Clone(names)
	slices.Sort(out)
	return out
}
