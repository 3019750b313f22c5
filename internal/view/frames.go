package view

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
)

// To start a command, one line of JSON (ExecRequest) is sent and then, when Stdin is set,
// the command's standard input. The answer is a sequence of frames: one byte for the kind,
// four bytes for the length (big endian), the payload.

// FrameKind says what a frame carries.
type FrameKind byte

// The kinds of frame, in the order they may come: Started, then any of Stdout,
// Stderr and Alive, then one of Exited and Failed, which ends the stream. A
// stream that ends otherwise was cut off.
const (
	FrameStarted FrameKind = 's' // JSON Started
	FrameStdout  FrameKind = 'o'
	FrameStderr  FrameKind = 'e'
	FrameAlive   FrameKind = 'k' // empty; shows that the other side is still there
	FrameExited  FrameKind = 'x' // JSON Exit
	FrameFailed  FrameKind = 'p' // JSON Refusal
)

// Limits of the exec stream, in bytes.
const (
	MaxFrame       = 64 << 10
	MaxExecRequest = 8 << 20
)

// Started says that a command's start is in the log.
type Started struct {
	Command  string `json:"command"`
	Sequence uint64 `json:"sequence"`
}

// WriteFrame writes one frame; a payload beyond MaxFrame is split.
func WriteFrame(w io.Writer, kind FrameKind, payload []byte) error {
	for {
		part := payload[:min(len(payload), MaxFrame)]
		buf := make([]byte, 5, 5+len(part))
		buf[0] = byte(kind)
		binary.BigEndian.PutUint32(buf[1:], uint32(len(part)))
		if _, err := w.Write(append(buf, part...)); err != nil {
			return err
		}
		if payload = payload[len(part):]; len(payload) == 0 {
			return nil
		}
	}
}

// WriteJSONFrame writes one frame with v as JSON.
func WriteJSONFrame(w io.Writer, kind FrameKind, v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	if len(b) > MaxFrame {
		return fmt.Errorf("a %c frame of %d bytes; at most %d are allowed", kind, len(b), MaxFrame)
	}
	return WriteFrame(w, kind, b)
}

// ReadFrame reads one frame into buf, which it may grow, and returns the payload. It
// returns io.EOF only before a frame's first byte.
func ReadFrame(r io.Reader, buf []byte) (FrameKind, []byte, error) {
	var head [5]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return 0, nil, err
	}
	n := binary.BigEndian.Uint32(head[1:])
	if n > MaxFrame {
		return 0, nil, fmt.Errorf("a frame of %d bytes; at most %d are allowed", n, MaxFrame)
	}
	switch kind := FrameKind(head[0]); kind {
	case FrameStarted, FrameStdout, FrameStderr, FrameAlive, FrameExited, FrameFailed:
		if cap(buf) < int(n) {
			buf = make([]byte, n, MaxFrame)
		}
		buf = buf[:n]
		if _, err := io.ReadFull(r, buf); err != nil {
			if err == io.EOF {
				err = io.ErrUnexpectedEOF
			}
			return 0, nil, err
		}
		return kind, buf, nil
	}
	return 0, nil, fmt.Errorf("a frame of unknown kind %q", head[0])
}
