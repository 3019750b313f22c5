package terminal

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"strings"
	"unicode"
	"unicode/utf8"

	"choir.dev/choiros/internal/defence"
)

// What the verbs print was written by models, by programs in boxes and by
// providers. A terminal obeys some characters instead of showing them: escape
// sequences move the cursor, retitle the window and fill the clipboard, and
// marks of direction show a line in another order than it has.

// obeyed reports whether a terminal would do something with a character other than show it.
// The controls from 0x80 on are escape sequences of one character.
func obeyed(r rune) bool {
	return !defence.Off(defence.TerminalText) && (unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r) || r == '\u2028' || r == '\u2029')
}

// OneLine makes text safe for a terminal: nothing that it would obey, on one line, at most
// n characters.
func OneLine(s string, n int) string {
	s = strings.Map(func(r rune) rune {
		if obeyed(r) {
			return ' '
		}
		return r
	}, s)
	if r := []rune(s); len(r) > n {
		s = string(r[:n-1]) + "…"
	}
	return s
}

// Plain does the same without joining lines or cutting.
func Plain(s string) string {
	return strings.Map(func(r rune) rune {
		if obeyed(r) && r != '\n' && r != '\t' {
			return -1
		}
		return r
	}, s)
}

// SafeJSON writes as JSON escapes what a terminal would obey; a program reads the same
// values. Outside of strings JSON contains none of these characters except line ends.
func SafeJSON(b []byte) []byte {
	if bytes.IndexFunc(b, func(r rune) bool { return r != '\n' && obeyed(r) }) < 0 {
		return b
	}
	out := make([]byte, 0, len(b)+64)
	for _, r := range string(b) {
		if r != '\n' && obeyed(r) {
			out = fmt.Appendf(out, `\u%04x`, r)
			continue
		}
		out = utf8.AppendRune(out, r)
	}
	return out
}

// screen shows the output of a program or a file of the computer on a terminal: its text,
// lines and colours. Everything else that the terminal would obey is shown in caret
// notation, such as ^[ for an escape.
type screen struct {
	w    io.Writer
	held []byte // the beginning of a colour's sequence or of a character, whose rest has not arrived
}

// OnScreen is f itself, unchanged, unless f is a terminal. done writes what is still held
// back.
func OnScreen(f *os.File) (w io.Writer, done func() error) {
	if st, err := f.Stat(); err != nil || st.Mode()&os.ModeCharDevice == 0 {
		return f, func() error { return nil }
	}
	s := &screen{w: f}
	return s, s.flush
}

// maxColour bounds the sequence of a colour, in bytes.
const maxColour = 32

// Write implements io.Writer.
func (s *screen) Write(p []byte) (int, error) {
	b := append(s.held, p...)
	out, rest := shown(b, false)
	s.held = append([]byte(nil), b[rest:]...)
	if _, err := s.w.Write(out); err != nil {
		return 0, err
	}
	return len(p), nil
}

func (s *screen) flush() error {
	out, _ := shown(s.held, true)
	s.held = nil
	_, err := s.w.Write(out)
	return err
}

// shown returns how the beginning of b is shown, and where that ends: before what may still
// be continued, unless end is set.
func shown(b []byte, end bool) (out []byte, rest int) {
	for at := 0; at < len(b); {
		c := b[at]
		if c == 0x1b && !defence.Off(defence.TerminalText) {
			n, whole := colour(b[at:])
			switch {
			case whole:
				out = append(out, b[at:at+n]...)
				at += n
			case n > 0 && !end:
				return out, at
			default:
				out, at = append(out, "^["...), at+1
			}
			continue
		}
		if c >= utf8.RuneSelf && !utf8.FullRune(b[at:]) && !end {
			return out, at
		}
		r, n := utf8.DecodeRune(b[at:])
		switch {
		case r == '\n' || r == '\t' || r == '\r' || !obeyed(r):
			if r == utf8.RuneError && n == 1 {
				// A terminal that does not decode UTF-8 takes some of these bytes for
				// controls.
				out = utf8.AppendRune(out, r)
			} else {
				out = append(out, b[at:at+n]...)
			}
		case r < 0x80:
			out = append(out, '^', byte(r)^0x40)
		default:
			out = fmt.Appendf(out, "<U+%04X>", r)
		}
		at += n
	}
	return out, len(b)
}

// colour reports whether b begins with the sequence of a colour, and its length; n > 0
// without whole means that it may become one.
func colour(b []byte) (n int, whole bool) {
	for i, c := range b {
		switch {
		case i == 0 || i == 1 && c == '[':
		case i > 1 && i < maxColour && (c >= '0' && c <= '9' || c == ';' || c == ':'):
		case i > 1 && c == 'm':
			return i + 1, true
		default:
			return 0, false
		}
	}
	return len(b), false
}

// Drawing shows what a program draws on a terminal of its own: the program moves the cursor
// and uses colours freely. Strings for the terminal itself, which fill the clipboard,
// change the window's title or have it answer, are left out.
type Drawing struct {
	To     io.Writer
	inside byte // the byte that began a string for the terminal; 0: not in one
	escape bool // the last byte was an escape
	lead   bool // the last byte was 0xc2, with which one-character controls begin
	out    []byte
}

// Write implements io.Writer.
func (d *Drawing) Write(p []byte) (int, error) {
	if defence.Off(defence.TerminalText) {
		return d.To.Write(p)
	}
	d.out = d.out[:0]
	for _, c := range p {
		d.take(c)
	}
	if _, err := d.To.Write(d.out); err != nil {
		return 0, err
	}
	return len(p), nil
}

// take handles the next byte.
func (d *Drawing) take(c byte) {
	escape, lead := d.escape, d.lead
	d.escape, d.lead = c == 0x1b, c == 0xc2
	switch {
	case escape && d.inside == 0 && (c < 0x20 && c != 0x18 && c != 0x1a && c != 0x1b || c >= 0x7f):
		// A terminal obeys a control inside an escape sequence and then continues the
		// sequence, or drops the byte: what follows still belongs to the escape.
		d.escape, d.lead = true, false
		if c < 0x20 {
			d.out = append(d.out, c)
		}
	case d.inside != 0:
		// It is ended by BEL, by ESC \, by the same as one character, or is aborted.
		if c == 0x07 || escape && c == '\\' || lead && c == 0x9c || c == 0x18 || c == 0x1a {
			d.inside = 0
		}
	case d.escape || d.lead:
		// The byte is held back until the next one shows what it begins.
		if escape {
			d.out = append(d.out, 0x1b)
		}
		if lead {
			d.out = append(d.out, 0xc2)
		}
	// k sets the window's title in tmux and screen.
	case escape && bytes.IndexByte([]byte("]PX^_k"), c) >= 0, lead && bytes.IndexByte([]byte{0x90, 0x98, 0x9d, 0x9e, 0x9f}, c) >= 0:
		d.inside = c
	case escape:
		d.out = append(d.out, 0x1b, c)
	case lead:
		d.out = append(d.out, 0xc2, c)
	default:
		d.out = append(d.out, c)
	}
}
