package embedded

import (
	"fmt"
	"log/slog"
	"strings"

	"choir.dev/choiros/internal/fault"
)

// serverLog writes the server's own messages to slog.
type serverLog struct {
	to         *slog.Logger
	storeErr   func(text string) // called when a stream's store has failed
	readFailed func(text string) // called when a block of a stream could not be read
}

func (l serverLog) Noticef(format string, v ...any) {
	l.to.Debug("nats: " + fmt.Sprintf(format, v...))
}

// Warnf recognises two messages that the server gives only in its log: that a stream could
// not be made for lack of space (the requester is told only that it failed), and that a
// block could not be opened or read (the reader is told that there is no such message).
func (l serverLog) Warnf(format string, v ...any) {
	text := fmt.Sprintf(format, v...)
	l.to.Warn("nats: " + text)
	if strings.Contains(text, "Stream create failed") && fault.NoSpaceText(text) {
		l.storeErr(text)
	}
	if _, why, ok := strings.Cut(text, "loadBlock error: "); ok && (strings.HasPrefix(why, "open ") || strings.HasPrefix(why, "read ")) {
		l.readFailed(why)
	}
}
func (l serverLog) Fatalf(format string, v ...any) { l.to.Error("nats: " + fmt.Sprintf(format, v...)) }

// Errorf logs errors about one client at the debug level, because code in a browser can
// cause any number of them.
func (l serverLog) Errorf(format string, v ...any) {
	text := fmt.Sprintf(format, v...)
	if strings.HasPrefix(text, "pipe - ") {
		l.to.Debug("nats: " + text)
		return
	}
	l.to.Error("nats: " + text)
	if strings.Contains(strings.ToLower(text), "critical write error") {
		l.storeErr(text)
	}
}
func (l serverLog) Debugf(format string, v ...any) { l.to.Debug("nats: " + fmt.Sprintf(format, v...)) }
func (l serverLog) Tracef(format string, v ...any) { l.to.Debug("nats: " + fmt.Sprintf(format, v...)) }
