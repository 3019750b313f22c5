//go:build defenceswitches

package defence

import (
	"bytes"
	"os"
)

// Tag is the build tag of this kind of build; tests build the programs that they start with
// it.
const Tag = "defenceswitches"

// Env names the file that lists the defences that are off, one per line. It is read at each
// call, so that a test can switch them while the process runs.
const Env = "DEFENCES_OFF_FILE"

// InBox is the path of that file in a box.
const InBox = "/defences-off"

// Off reports whether the suite has switched a defence off.
func Off(name Name) bool {
	b, err := os.ReadFile(os.Getenv(Env))
	if err != nil {
		b, err = os.ReadFile(InBox)
	}
	if err != nil {
		return false
	}
	for line := range bytes.Lines(b) {
		if string(bytes.TrimSpace(line)) == string(name) {
			return true
		}
	}
	return false
}

// BoxArgs are arguments of bubblewrap that make the switches visible in boxes.
func BoxArgs() []string {
	if path := os.Getenv(Env); path != "" {
		return []string{"--ro-bind", path, InBox}
	}
	return nil
}

// LauncherEnv is the environment that a launcher, which otherwise has none, needs for the
// switches.
func LauncherEnv() []string {
	return []string{Env + "=" + os.Getenv(Env)}
}
