package harness

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"

	"choir.dev/choiros/contract"
)

// repeats counts calls that were made with the same arguments and outcome.
type repeats struct {
	counts map[[32]byte]int
	warned map[[32]byte]int // the turn in which the model was first warned
}

func newRepeats() *repeats {
	return &repeats{counts: map[[32]byte]int{}, warned: map[[32]byte]int{}}
}

// add counts one call and returns the key that it is counted under and how often it was
// seen. A call that changed something for the first time resets the count of all others:
// the same test run after an edit is progress, not repetition.
func (r *repeats) add(c contract.ToolCall, ret Return, changed bool) (key [32]byte, n int) {
	var canon bytes.Buffer
	if json.Compact(&canon, c.Args) != nil {
		canon.Write(c.Args)
	}
	key = sha256.Sum256(fmt.Appendf(nil, "%s\x00%s\x00%t\x00%v\x00%s", c.Name, canon.Bytes(), ret.IsError, ret.Images, ret.Content))
	if changed && r.counts[key] == 0 {
		mine := map[[32]byte]int{}
		for k, n := range r.counts {
			if n >= 1 {
				mine[k] = 1
			}
		}
		r.counts, r.warned = mine, map[[32]byte]int{}
	}
	r.counts[key]++
	return key, r.counts[key]
}

// warn notes that the returns of this turn warn the model of a repetition. fresh says that
// the turn had no such warning yet, heard that an earlier turn had one.
func (r *repeats) warn(key [32]byte, turn int) (fresh, heard bool) {
	first, told := r.warned[key]
	if !told {
		r.warned[key] = turn
	}
	return !told, told && first < turn
}
