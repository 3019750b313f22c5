// Package order puts targets of a build file in the order in which they are built.
package order

import "strings"

// Parse reads lines of the form "target: dependency dependency". A # begins a comment.
func Parse(text string) map[string][]string {
	out := map[string][]string{}
	for _, line := range strings.Split(text, "\n") {
		if strings.HasPrefix(line, "#") {
			continue
		}
		target, rest, _ := strings.Cut(line, ":")
		out[target] = strings.Split(rest, " ")
	}
	return out
}
