//go:build defenceswitches

package defence

import (
	"bytes"
	"os"
)

// Tag is the build tag of this build's kind; tests build what they start with it.
const Tag = "defenceswitches"

// Env names the file that lists the defences that are off, one a line. It is
// read at each question, so that a test can switch while the process runs.
const Env = "DEFENCES_OFF_FILE"

// InBox is where a box of this build sees that file.
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

// BoxArgs are arguments of bubblewrap that let boxes see what is off.
func BoxArgs() []string {
	if path := os.Getenv(Env); path != "" {
		return []string{"--ro-bind", path, InBox}
	}
	return nil
}

// LauncherEnv is what a launcher, which has no environment else, needs of it.
func LauncherEnv() []string {
	return []string{Env + "=" + os.Getenv(Env)}
}
