package brief

import (
	"context"
	"os"
	"strings"
	"sync"
	"time"

	"choir.dev/choiros/internal/awake"
	"choir.dev/choiros/internal/lazy"
)

// asked are the programs that are looked for, each with what makes it say its version.
var asked = [][]string{
	{"git", "--version"}, {"bash", "--version"}, {"make", "--version"}, {"go", "version"}, {"node", "--version"},
	{"npm", "--version"}, {"python3", "--version"}, {"pip3", "--version"}, {"gcc", "--version"}, {"cargo", "--version"},
	{"rustc", "--version"}, {"java", "-version"}, {"ruby", "--version"}, {"php", "--version"}, {"rg", "--version"},
	{"jq", "--version"}, {"curl", "--version"}, {"sqlite3", "--version"},
}

var number = lazy.Regexp(`\d+(\.\d+)+`)

// versions asks programs for their versions, some at a time.
func versions(ctx context.Context, run func(ctx context.Context, argv ...string) (string, error)) []Program {
	found := make([]string, len(asked))
	turns := make(chan struct{}, 4)
	var all sync.WaitGroup
	for i, argv := range asked {
		all.Go(func() {
			turns <- struct{}{}
			defer func() { <-turns }()
			ctx, cancel := awake.WithTimeout(ctx, time.Second)
			defer cancel()
			out, err := run(ctx, argv...)
			if err != nil {
				return
			}
			if found[i] = number().FindString(clip(out, 2000)); found[i] == "" {
				found[i] = "(version unknown)"
			}
		})
	}
	all.Wait()
	var out []Program
	for i, v := range found {
		if v != "" {
			out = append(out, Program{Name: asked[i][0], Version: v})
		}
	}
	return out
}

// release is the kernel's, with the distribution's name where it says one.
func release() string {
	kernel, _ := os.ReadFile("/proc/sys/kernel/osrelease")
	out := "kernel " + strings.TrimSpace(string(kernel))
	b, _ := os.ReadFile("/etc/os-release")
	for l := range strings.Lines(clip(string(b), 8<<10)) {
		if name, ok := strings.CutPrefix(strings.TrimSpace(l), "PRETTY_NAME="); ok {
			out += ", " + strings.Trim(name, `"`)
		}
	}
	return clip(out, 200)
}
