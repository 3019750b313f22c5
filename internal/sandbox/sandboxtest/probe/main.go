// Probe is a small static program that tests run in a box, and beside it, to try
// what a box must refuse. It prints one word or line and exits 0 when the thing
// it tried worked, 1 when it was refused, 2 when it was called wrongly.
package main

import (
	"fmt"
	"os"
	"sort"
	"strings"
)

var probes = map[string]func(args []string) error{}

func main() {
	if len(os.Args) < 2 || probes[os.Args[1]] == nil {
		names := make([]string, 0, len(probes))
		for n := range probes {
			names = append(names, n)
		}
		sort.Strings(names)
		fmt.Fprintln(os.Stderr, "usage: probe", strings.Join(names, "|"))
		os.Exit(2)
	}
	if err := probes[os.Args[1]](os.Args[2:]); err != nil {
		fmt.Println("refused:", err)
		os.Exit(1)
	}
}

func arg(args []string, i int) string {
	if i < len(args) {
		return args[i]
	}
	return ""
}
