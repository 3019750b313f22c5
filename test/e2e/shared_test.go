package e2e_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"choir.dev/choiros/test/choirtest"
)

// greed takes every epoll watch of its user until it is ended.
const greed = `
import os, select, time
things, instances = [os.pipe()[0] for _ in range(1000)], []
try:
    while True:
        instances.append(select.epoll())
        for t in things:
            instances[-1].register(t)
except OSError as e:
    print(e, flush=True)
time.sleep(600)
`

// TestOneCommandTakesAllWatches shows that a command that leaves no epoll watch to the user who
// runs choir is ended and says why, and that choir goes on.
func TestOneCommandTakesAllWatches(t *testing.T) {
	dir := choirtest.Scratch(t)
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	o := choirtest.Options{Data: filepath.Join(dir, "data")}
	if os.Geteuid() == 0 {
		o.User = 64208 // root's watches are also those of the machine's own services, and of other tests
		t.Parallel()
	}
	in := choirtest.Start(t, o)
	defer in.Stop(t)
	r, err := in.Run(t.Context(), "exec", "--", "python3", "-c", greed)
	if err != nil {
		t.Fatal(err)
	}
	if r.Code == 0 || !strings.Contains(r.Stderr, "shared: it used up the epoll watches") {
		t.Errorf("the command ended with %d, %q, %q", r.Code, r.Stdout, r.Stderr)
	}
	if out := in.Must(t, "exec", "--", "echo", "on"); out != "on\n" {
		t.Errorf("choir goes on with %q; it said:\n%s", out, in.Logs())
	}
}
