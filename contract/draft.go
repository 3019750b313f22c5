package contract

import "time"

// Draft is an event before the appender has stamped sequence, epoch, computer,
// source and (when zero) id and time.
type Draft struct {
	ID          string // empty: a new UUIDv7 is drawn. A derived id makes a repeated append a no-op
	Actor       Actor
	Type        string
	Subject     string // what it is about; Expect compares on it
	Time        time.Time
	Data        Payload
	Run         string
	Task        string
	Causation   string
	Correlation string
	Traceparent string
	Expect      *Expect // nil: append unconditionally
}

// Expect makes an append conditional: it succeeds only if Last is the sequence
// of the newest event of the log with the draft's Subject, 0 when there is none.
type Expect struct{ Last uint64 }
