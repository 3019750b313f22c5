//go:build defenceswitches

package defence

import (
	"bufio"
	"bytes"
	"os"
	"strings"
)

// Env names the file that lists the defences that are off, one a line. It is
// read at each question, so that a test can switch while the process runs.
const Env = "CHOIR_DEFENCES_OFF"

// InBox is where a box of this build sees that file.
const InBox = "/defences-off"

// Off reports whether the suite has switched a defence off. "all" switches
// every one off; "-name" keeps that one on.
func Off(name Name) bool {
	path := os.Getenv(Env)
	if path == "" {
		path = InBox
	}
	b, err := os.ReadFile(path)
	if err != nil {
		return false
	}
	off := false
	for s := bufio.NewScanner(bytes.NewReader(b)); s.Scan(); {
		switch line := strings.TrimSpace(s.Text()); line {
		case "all", string(name):
			off = true
		case "-" + string(name):
			return false
		}
	}
	return off
}
