package provider

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"hash/maphash"
	"sync"

	"choir.dev/choiros/contract"
)

// WritePart writes a part into a hash, so that parts that differ are written differently, and returns about how many
// bytes it has.
func WritePart(h *maphash.Hash, p contract.Part) (size int) {
	str := func(s string) {
		number(h, int64(len(s)))
		h.WriteString(s)
		size += len(s)
	}
	switch {
	case p.Call != nil:
		h.WriteByte('c')
		str(p.Call.ID)
		str(p.Call.Name)
		number(h, int64(len(p.Call.Args)))
		h.Write(p.Call.Args)
		size += len(p.Call.Args)
		flag(h, p.Call.Cut)
		number(h, p.Call.Arrived)
	case p.Return != nil:
		h.WriteByte('r')
		str(p.Return.ID)
		str(p.Return.Content)
		flag(h, p.Return.IsError)
		for _, i := range p.Return.Images {
			maphash.WriteComparable(h, i)
		}
	case p.Reasoning != nil:
		h.WriteByte('t')
		maphash.WriteComparable(h, *p.Reasoning)
		size += len(p.Reasoning.Text) + len(p.Reasoning.Opaque)
	case p.Image != nil:
		h.WriteByte('i')
		maphash.WriteComparable(h, *p.Image)
	default:
		h.WriteByte('w')
		str(p.Text)
	}
	return size + 32 // for its form
}

// number writes a number without what maphash.WriteComparable spends on its type.
func number(h *maphash.Hash, n int64) {
	var b [8]byte
	binary.LittleEndian.PutUint64(b[:], uint64(n))
	h.Write(b[:])
}

func flag(h *maphash.Hash, is bool) {
	if is {
		h.WriteByte(1)
	} else {
		h.WriteByte(0)
	}
}

// Memo keeps how the tools and messages of a loop's last request were encoded, so that the next one, which begins with
// them, encodes only what is new. A nil Memo keeps nothing.
type Memo struct {
	seed maphash.Seed

	mu    sync.Mutex
	kept  map[uint64][]byte
	size  int                 // of all messages of the last request
	tools []contract.ToolSpec // of the last request
	as    string
	specs json.RawMessage // what they are on the wire
}

// NewMemo returns a Memo of nothing.
func NewMemo() *Memo { return &Memo{seed: maphash.MakeSeed()} }

// Messages returns the JSON array of a request's messages. encode returns what a message is on the wire: any number of
// items with a comma between them. as says what else that depends on, for each message. Messages with pictures are
// not kept.
func (m *Memo) Messages(messages []contract.Message, as func(i int) string, encode func(i int) ([]byte, error)) (json.RawMessage, error) {
	var kept map[uint64][]byte
	room := 0
	if m != nil {
		m.mu.Lock()
		kept, room = m.kept, m.size
		m.mu.Unlock()
	}
	next := make(map[uint64][]byte, len(messages))
	out := append(make([]byte, 0, room+16<<10), '[')
	for i, message := range messages {
		key, ok := uint64(0), m != nil && !Pictured(message)
		if ok {
			key = m.key(message, as(i))
		}
		b, known := kept[key]
		if !known || !ok {
			var err error
			if b, err = encode(i); err != nil {
				return nil, err
			}
		}
		if ok {
			next[key] = b
		}
		if len(out) > 1 && len(b) > 0 {
			out = append(out, ',')
		}
		out = append(out, b...)
	}
	if m != nil {
		m.mu.Lock()
		m.kept, m.size = next, len(out)
		m.mu.Unlock()
	}
	return append(out, ']'), nil
}

// Tools returns the JSON array of a request's tools, which encode encodes; nil if there are none. as names the wire. Tools that are
// those of the last request, and not only alike, must not have been changed since.
func (m *Memo) Tools(tools []contract.ToolSpec, as string, encode func(i int) (json.Marshaler, error)) (json.RawMessage, error) {
	if len(tools) == 0 {
		return nil, nil
	}
	if m != nil {
		m.mu.Lock()
		defer m.mu.Unlock()
		if as == m.as && len(tools) == len(m.tools) && &tools[0] == &m.tools[0] {
			return m.specs, nil
		}
	}
	out := json.RawMessage{'['}
	for i := range tools {
		t, err := encode(i)
		if err != nil {
			return nil, fmt.Errorf("tools[%d].schema: %w", i, err)
		}
		b, err := t.MarshalJSON()
		if err != nil {
			return nil, err
		}
		if i > 0 {
			out = append(out, ',')
		}
		out = append(out, b...)
	}
	out = append(out, ']')
	if m != nil {
		m.tools, m.as, m.specs = tools, as, out
	}
	return out, nil
}

func (m *Memo) key(message contract.Message, as string) uint64 {
	var h maphash.Hash
	h.SetSeed(m.seed)
	h.WriteString(as)
	h.WriteByte(0)
	h.WriteString(string(message.Role))
	for _, p := range message.Parts {
		h.WriteByte(0)
		WritePart(&h, p)
	}
	return h.Sum64()
}

// Pictured reports whether there are pictures in a message.
func Pictured(m contract.Message) bool {
	for _, p := range m.Parts {
		if p.Image != nil || p.Return != nil && len(p.Return.Images) > 0 {
			return true
		}
	}
	return false
}

// Field is one of a request, by the name that its service has for it.
type Field struct {
	Name  string
	Value json.RawMessage // nil: the request has none
}

// Body returns a request's JSON: params, encoded without these fields, and the fields.
func Body(params json.Marshaler, fields ...Field) ([]byte, error) {
	b, err := params.MarshalJSON()
	if err != nil {
		return nil, err
	}
	size := len(b)
	for _, f := range fields {
		size += len(f.Name) + len(f.Value) + 4
	}
	out := append(make([]byte, 0, size), b[:len(b)-1]...) // its last brace
	for _, f := range fields {
		if f.Value == nil {
			continue
		}
		if len(out) > 1 {
			out = append(out, ',')
		}
		out = append(append(append(append(out, '"'), f.Name...), `":`...), f.Value...)
	}
	return append(out, '}'), nil
}
