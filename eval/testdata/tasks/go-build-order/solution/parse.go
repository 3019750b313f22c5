// Package order puts targets of a build file in the order in which they are built.
package order

import "strings"

// Parse reads lines of the form "target: dependency dependency". A # begins a comment. A target that
// has several lines depends on what all of them name.
func Parse(text string) map[string][]string {
	out := map[string][]string{}
	for _, line := range strings.Split(text, "\n") {
		line, _, _ = strings.Cut(line, "#")
		target, rest, ok := strings.Cut(line, ":")
		if target = strings.TrimSpace(target); !ok || target == "" {
			continue
		}
		out[target] = append(out[target], strings.Fields(rest)...)
	}
	return out
}
