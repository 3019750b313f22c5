package guest

import (
	"encoding/binary"
	"fmt"
	"io"
	"sync"
)

// Frames on an upgraded stream: type (1 byte), length (4 bytes, big endian), payload.
const (
	frameStdin    = 'i' // host → guest; empty: end of input
	frameSignal   = 's' // host → guest; one byte
	frameResize   = 'r' // host → guest; rows, columns as 16 bits each
	frameTaken    = 'a' // guest → host; 4 bytes: how much of the input was taken
	frameStdout   = 'o'
	frameStderr   = 'e'
	frameOutGap   = 'O' // 8 bytes: how many bytes of stdout were left out here
	frameErrGap   = 'E'
	frameExit     = 'x' // Exit as JSON; the last frame
	maxFrame      = 64 << 10
	frameOverhead = 5

	upgradeName = "choir-frames"
)

type frameWriter struct {
	mu  sync.Mutex
	w   io.Writer
	buf []byte
}

func (f *frameWriter) frame(kind byte, payload []byte) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	for {
		n := min(len(payload), maxFrame)
		f.buf = append(f.buf[:0], kind)
		f.buf = binary.BigEndian.AppendUint32(f.buf, uint32(n))
		f.buf = append(f.buf, payload[:n]...)
		if _, err := f.w.Write(f.buf); err != nil {
			return err
		}
		if payload = payload[n:]; len(payload) == 0 {
			return nil
		}
	}
}

// readFrame reads one frame into buf, which holds maxFrame bytes.
func readFrame(r io.Reader, buf []byte) (kind byte, payload []byte, err error) {
	var header [frameOverhead]byte
	if _, err := io.ReadFull(r, header[:]); err != nil {
		return 0, nil, err
	}
	n := binary.BigEndian.Uint32(header[1:])
	if n > maxFrame || int(n) > len(buf) {
		return 0, nil, fmt.Errorf("a frame of %d bytes, the limit is %d", n, maxFrame)
	}
	if _, err := io.ReadFull(r, buf[:n]); err != nil {
		if err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		return 0, nil, err
	}
	return header[0], buf[:n], nil
}
