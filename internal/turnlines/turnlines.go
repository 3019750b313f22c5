// Package turnlines is how a loop posts a request for a turn: a line of JSON with the contract.TurnRequest, and
// behind it a line for each message that is not in there. A conversation only grows, so that a request begins with
// the lines of the one before; who kept those decodes and checks only what is new.
package turnlines

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"

	"choir.dev/choiros/contract"
)

// maxMessages is what contract.TurnRequest allows (TestARequestHasNoMoreMessagesThanTheContractAllows).
const maxMessages = 2000

// Encode returns a request as it is posted, by itself.
func Encode(r contract.TurnRequest) ([]byte, error) { return new(Encoder).Encode(r) }

// Encoder encodes the requests of one loop, and of each what the one before did not have. A message that a
// request shares with the one before, its parts included, and its tools must not have been changed since. It is not safe for
// concurrent use.
type Encoder struct {
	head     contract.TurnRequest // without its messages
	first    []byte
	messages []contract.Message
	lines    [][]byte
}

// Encode returns a request as it is posted.
func (e *Encoder) Encode(r contract.TurnRequest) ([]byte, error) {
	messages := r.Messages
	r.Messages = []contract.Message{}
	var b bytes.Buffer
	b.Grow(e.size() + 16<<10)
	enc := json.NewEncoder(&b) // which ends each line
	if e.first != nil && sameHead(r, e.head) {
		b.Write(e.first)
	} else if err := enc.Encode(r); err != nil {
		return nil, err
	}
	ends := make([]int, len(messages))
	begin := b.Len()
	first := begin
	for i, m := range messages {
		if i < len(e.messages) && same(m, e.messages[i]) {
			b.Write(e.lines[i])
		} else if err := enc.Encode(m); err != nil {
			return nil, err
		}
		ends[i] = b.Len()
	}
	body := b.Bytes()
	lines := make([][]byte, len(messages))
	for i, end := range ends {
		lines[i], begin = body[begin:end:end], end
	}
	e.head, e.first = r, body[:first:first]
	e.messages, e.lines = slices.Clone(messages), lines
	return body, nil
}

func (e *Encoder) size() int {
	n := 0
	for _, line := range e.lines {
		n += len(line)
	}
	return n
}

// sameHead reports whether two requests without messages say the same. Their tools have to be one list.
func sameHead(a, b contract.TurnRequest) bool {
	if len(a.Tools) != len(b.Tools) || len(a.Tools) > 0 && &a.Tools[0] != &b.Tools[0] {
		return false
	}
	a.Tools, b.Tools = nil, nil
	return reflect.DeepEqual(a, b)
}

// same reports whether two messages are one, which says so sooner than what is in them.
func same(a, b contract.Message) bool {
	return a.Role == b.Role && len(a.Parts) == len(b.Parts) && len(a.Parts) > 0 && &a.Parts[0] == &b.Parts[0]
}

// Decode decodes and checks a request as it is posted, by itself.
func Decode(body []byte) (contract.TurnRequest, error) {
	r, _, err := Kept{}.Decode(body)
	return r, err
}

// Kept is what is kept of a request, for the next one of the same loop. The zero Kept is of none. It does not
// change, and holds the body that it was decoded from.
type Kept struct {
	head     []byte
	request  contract.TurnRequest
	lines    [][]byte
	messages []contract.Message
}

// Size is about how many bytes of memory it takes.
func (k Kept) Size() int {
	n := len(k.head)
	for _, line := range k.lines {
		n += len(line) + 200
	}
	return 2 * n // the body, and what was decoded of it
}

// Decode decodes and checks a request, of which only what differs from the kept one is looked at, and returns what
// is to be kept of it. The messages of a request may be those of another one: they must not be changed.
func (k Kept) Decode(body []byte) (contract.TurnRequest, Kept, error) {
	body = bytes.TrimSuffix(body, []byte{'\n'})
	if n := bytes.Count(body, []byte{'\n'}); n > maxMessages { // before there is something for each
		return contract.TurnRequest{}, Kept{}, tooMany(n)
	}
	lines := bytes.Split(body, []byte{'\n'})
	now := Kept{head: lines[0], lines: lines[1:], messages: make([]contract.Message, 0, len(lines)-1)}
	if bytes.Equal(k.head, now.head) && k.head != nil {
		now.request = k.request
	} else if err := contract.DecodeStrict(now.head, contract.MaxTurn, &now.request); err != nil {
		return contract.TurnRequest{}, Kept{}, fmt.Errorf("request: %w", err)
	}
	if n := len(now.request.Messages) + len(now.lines); n > maxMessages {
		return contract.TurnRequest{}, Kept{}, tooMany(n)
	}
	fresh := now.request
	fresh.Messages = slices.Clone(fresh.Messages)
	for i, line := range now.lines {
		if i < len(k.lines) && bytes.Equal(k.lines[i], line) {
			now.messages = append(now.messages, k.messages[i])
			continue
		}
		var m contract.Message
		if err := contract.DecodeStrict(line, contract.MaxTurn, &m); err != nil {
			return contract.TurnRequest{}, Kept{}, fmt.Errorf("request: line %d: %w", i+2, err)
		}
		now.messages = append(now.messages, m)
		fresh.Messages = append(fresh.Messages, m)
	}
	if len(fresh.Messages) == 0 {
		fresh.Messages = now.messages[:min(1, len(now.messages))]
	}
	if err := fresh.Validate(); err != nil {
		return contract.TurnRequest{}, Kept{}, fmt.Errorf("request: %w", err)
	}
	all := now.request
	all.Messages = slices.Concat(now.request.Messages, now.messages)
	return all, now, nil
}

func tooMany(n int) error {
	return fmt.Errorf("request: messages has %d items; at most %d are allowed", n, maxMessages)
}
