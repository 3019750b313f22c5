package tools

import (
	"encoding/json"

	"choir.dev/choiros/contract"
)

// Limits of what a tool gives back or touches.
const (
	MaxRequest  = 2 << 20   // a call's body
	MaxOutput   = 64 << 10  // a result's Output
	maxStream   = 256 << 10 // each of a command's stdout and stderr, head and tail
	maxFile     = 8 << 20   // a file that is read whole or edited
	maxMatches  = 300       // grep
	maxListed   = 1000      // glob and ls
	maxVisited  = 100_000   // entries one search looks at
	maxGrepFile = 2 << 20   // larger files are not searched
)

// Result is the answer to a tool call. OK false means the tool could not do
// what was asked; Output then says why. A command that ran is OK whatever its
// exit code.
type Result struct {
	OK        bool              `json:"ok"`
	Output    string            `json:"output"`
	Truncated bool              `json:"truncated,omitempty"`
	Command   *contract.Command `json:"command,omitempty"` // bash, run
	Data      json.RawMessage   `json:"data,omitempty"`    // facts
}

func failed(why string) Result { return Result{Output: why} }

// HeaderBase carries the commit a task started from, for git_status and git_diff.
const HeaderBase = "Choir-Base"
