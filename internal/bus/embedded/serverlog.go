package embedded

import (
	"fmt"
	"log/slog"
	"strings"

	"choir.dev/choiros/internal/fault"
)

// serverLog writes the server's own messages to slog.
type serverLog struct {
	to       *slog.Logger
	storeErr func(text string) // told when a stream's store has failed
	unread   func(text string) // told when a block of a stream could not be read
}

func (l serverLog) Noticef(format string, v ...any) {
	l.to.Debug("nats: " + fmt.Sprintf(format, v...))
}

// Warnf hears of a stream that could not be made for want of space: whoever asked
// for it is only told that it could not. It hears too of a block that could not be
// opened or read, for whoever asked for a message in it is told that there is none.
func (l serverLog) Warnf(format string, v ...any) {
	text := fmt.Sprintf(format, v...)
	l.to.Warn("nats: " + text)
	if strings.Contains(text, "Stream create failed") && fault.NoSpaceText(text) {
		l.storeErr(text)
	}
	if _, why, ok := strings.Cut(text, "loadBlock error: "); ok && (strings.HasPrefix(why, "open ") || strings.HasPrefix(why, "read ")) {
		l.unread(why)
	}
}
func (l serverLog) Fatalf(format string, v ...any) { l.to.Error("nats: " + fmt.Sprintf(format, v...)) }

// Errorf demotes what is about one client: a browser's code can cause any
// number of those.
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
