package boxtools

import (
	"fmt"
	"strings"
)

// ring keeps the end of a stream of any length.
type ring struct {
	buf  []byte
	next int // where the oldest byte is, once it is full
}

func (r *ring) write(p []byte, room int) {
	if len(p) > room {
		p = p[len(p)-room:]
	}
	for len(p) > 0 {
		if len(r.buf) < room {
			k := min(room-len(r.buf), len(p))
			r.buf, p = append(r.buf, p[:k]...), p[k:]
			continue
		}
		k := copy(r.buf[r.next:], p)
		r.next, p = (r.next+k)%room, p[k:]
	}
}

func (r *ring) String() string { return string(r.buf[r.next:]) + string(r.buf[:r.next]) }

// headTail keeps the beginning and the end of a stream of any length.
type headTail struct {
	head []byte
	tail ring
	n    int64
}

const half = maxStream / 2

func (h *headTail) Write(p []byte) (int, error) {
	h.n += int64(len(p))
	k := min(max(half-len(h.head), 0), len(p))
	h.head = append(h.head, p[:k]...)
	h.tail.write(p[k:], half)
	return len(p), nil
}

func (h *headTail) cut() bool { return h.n > int64(len(h.head)+len(h.tail.buf)) }

func (h *headTail) String() string {
	s := string(h.head) + h.tail.String()
	if h.cut() {
		s = fmt.Sprintf("%s\n[… %d bytes left out …]\n%s", h.head, h.n-int64(len(h.head)+len(h.tail.buf)), h.tail.String())
	}
	return clean(s)
}

func clean(s string) string {
	return strings.ReplaceAll(strings.ToValidUTF8(s, "\uFFFD"), "\x00", "\uFFFD")
}

// ends is s within room: its beginning and, longer, its end, in whole lines where that costs little, and
// between them what is missing. rest says where all of it is.
func ends(s string, room int, rest string) (string, bool) {
	if len(s) <= room {
		return s, false
	}
	head, tail := s[:room/3], s[len(s)-room*2/3:]
	if i := strings.LastIndexByte(head, '\n'); i > len(head)/2 {
		head = head[:i+1]
	}
	if i := strings.IndexByte(tail, '\n'); i >= 0 && i < len(tail)/2 {
		tail = tail[i+1:]
	}
	return strings.ToValidUTF8(fmt.Sprintf("%s\n[… %d bytes left out%s …]\n%s", head, len(s)-len(head)-len(tail), rest, tail), ""), true
}
