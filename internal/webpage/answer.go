package webpage

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"

	"choir.dev/choiros/contract"
)

// MaxAnswered bounds what is kept of what a service answers to a request, in bytes.
const MaxAnswered = 64 << 10

// Answer is what came of a request, as far as it is known. A reader says it in several lines, each of which replaces the one
// before: what is known stays so if it ends in the middle.
type Answer struct {
	// Sent says that something of the request may have left.
	Sent      bool   `json:"sent,omitempty"`
	Status    int    `json:"status,omitempty"`   // of the answer, 0 if there was none
	Location  string `json:"location,omitempty"` // where it leads, which nobody follows
	Media     string `json:"media,omitempty"`
	Bytes     int64  `json:"bytes,omitempty"`
	Text      string `json:"text,omitempty"`
	Truncated bool   `json:"truncated,omitempty"`
	// Failed says in a sentence why there is no answer, or no text of it.
	Failed string `json:"failed,omitempty"`
	// Whole says that nothing more is said: without it the reader ended before it was done.
	Whole bool `json:"whole,omitempty"`
}

// Outcome is what a request came to. It is known not to have been made only if nothing left, or if whoever was asked says so:
// that it was wrong (4xx), or is to be made elsewhere (307, 308). Other redirects also follow what was done, and a server that
// fails, or gives up waiting (408), may have acted before.
func (a Answer) Outcome() contract.EffectOutcome {
	switch s := a.Status; {
	case !a.Sent:
		return contract.EffectFailed
	case s >= 200 && s < 300:
		return contract.EffectDone
	case s == 307 || s == 308, s >= 400 && s < 500 && s != 408:
		return contract.EffectFailed
	}
	return contract.EffectUnknown
}

// DecodeAnswer reads what a reader said of a request, which is not trusted. What it did not come to say counts as sent.
func DecodeAnswer(raw []byte) (Answer, error) {
	var a Answer
	if len(raw) > MaxAnswer {
		return a, fmt.Errorf("the reader's answer has more than %d bytes", MaxAnswer)
	}
	for line := range bytes.Lines(raw) {
		if line[len(line)-1] != '\n' {
			break // it ended within it
		}
		next := Answer{}
		if err := json.Unmarshal(line, &next); err != nil {
			return Answer{Sent: true}, errors.New("the reader's answer can't be read")
		}
		if a.Sent && !next.Sent || a.Status != 0 && next.Status != a.Status || a.Whole || next.Status != 0 && (!next.Sent || next.Status < 100 || next.Status > 999) ||
			next.Bytes < 0 || len(next.Text) > MaxAnswered {
			return Answer{Sent: true}, errors.New("the reader's answer is none of a request")
		}
		a = next
	}
	a.Sent = a.Sent || !a.Whole
	a.Location, a.Media, a.Failed, a.Text = Line(a.Location, contract.MaxURL), mediaType(a.Media), Line(a.Failed, 400), Plain(a.Text)
	return a, nil
}
