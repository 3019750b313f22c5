package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"choir.dev/choiros/test/choirtest"
)

// maxBeforeMain is how many bytes may be allocated before main begins. From 4 MiB on, the
// garbage collector would run once more in every verb.
const maxBeforeMain = 3 << 19

// TestAVerbStartsWithLittle: every verb starts the whole program, so what packages allocate
// before main begins slows each of them down. Bytes are counted rather than time, which
// depends on the load; the packages with the most are named.
func TestAVerbStartsWithLittle(t *testing.T) {
	t.Parallel()
	cmd := exec.Command(choirtest.Binary(t), "version")
	cmd.Env = append(os.Environ(), "GODEBUG=inittrace=1")
	var said bytes.Buffer
	cmd.Stderr = &said
	if err := cmd.Run(); err != nil {
		t.Fatal(err)
	}
	total, packages := 0, 0
	var most []string
	for line := range strings.Lines(said.String()) {
		// init PACKAGE @0.1 ms, 0.02 ms clock, 1234 bytes, 5 allocs
		var name string
		var at, clock float64
		var size, allocs int
		if n, _ := fmt.Sscanf(line, "init %s @%f ms, %f ms clock, %d bytes, %d allocs", &name, &at, &clock, &size, &allocs); n != 5 {
			continue
		}
		total, packages = total+size, packages+1
		if size > 64<<10 {
			most = append(most, fmt.Sprintf("%s %d", name, size))
		}
	}
	if packages < 50 {
		t.Fatalf("%d packages tell what they make: the trace reads otherwise by now:\n%s", packages, said.String())
	}
	if total > maxBeforeMain {
		t.Errorf("%d bytes are allocated before main, at most %d should be: %v", total, maxBeforeMain, most)
	}
}

// TestUpHasCoarseTimers: the threads of what goes on running may be woken late, which takes
// a start more, for the runtime's own are made before main. No other verb starts twice.
func TestUpHasCoarseTimers(t *testing.T) {
	t.Parallel()
	for verb, want := range map[string]int{"up": 2, "version": 1} {
		cmd := exec.Command(choirtest.Binary(t), verb, "--help")
		cmd.Env = append(os.Environ(), "GODEBUG=inittrace=1")
		var said bytes.Buffer
		cmd.Stderr = &said
		if err := cmd.Run(); err != nil {
			t.Fatal(err)
		}
		if got := strings.Count(said.String(), "init os @"); got != want {
			t.Errorf("choir %s started %d times, want %d", verb, got, want)
		}
	}
}

// TestMethodsThatNobodyCallsAreLeftOut: a program that may run a template may call any
// method of any type by its name, so its linker leaves none out; in this program those were
// a tenth of the binary. A single call in a library can bring templates back. The names of
// the functions in the program show it.
func TestMethodsThatNobodyCallsAreLeftOut(t *testing.T) {
	t.Parallel()
	program, err := os.ReadFile(choirtest.Binary(t))
	if err != nil {
		t.Fatal(err)
	}
	for name, there := range map[string]bool{"main.commandLine": true, "text/template.(*Template).Execute": false, "text/template.(*state).evalField": false} {
		if bytes.Contains(program, []byte(name)) != there {
			t.Errorf("that the program has %s is not %v", name, there)
		}
	}
}
