package gateway

import "time"

// Limits bounds every call. Zero fields mean the defaults.
type Limits struct {
	Wall      time.Duration // one try; 30 minutes
	FirstByte time.Duration // until the answer starts; 6 minutes
	Idle      time.Duration // between two pieces of the answer, signs of life included; 6 minutes
	Stall     time.Duration // between two pieces that the answer grows by; 15 minutes
	Body      int64         // raw bytes of one answer; 32 MiB
	Output    int           // bytes of text and arguments kept of one turn; 1 MiB
	Calls     int           // tool calls kept of one turn; 64
	Parallel  int           // calls of one run at a time; 16

	Backoff    time.Duration // before the second try, doubled each time; 500 ms
	MaxBackoff time.Duration // and at most; 1 minute
	Failures   int           // so many in a row keep calls away from a model; 5
	// Attempts bounds the tries of a call whose user can't be told that it waits; 4.
	Attempts int
	// MaxRetryGap is the longest wait between tries of a call whose user can't be told; 30 s.
	MaxRetryGap time.Duration
	// Patience is for how long a call waits for its model; 30 minutes.
	Patience time.Duration
	// FallbackAfter is for how long a model must have failed before another answers in its place; 1 minute.
	FallbackAfter time.Duration
	// Tell is how long a wait has to be for its user to be told; 2 s.
	Tell time.Duration
}

func (l Limits) withDefaults() Limits {
	def := func(p *time.Duration, v time.Duration) {
		if *p <= 0 {
			*p = v
		}
	}
	def(&l.Wall, 30*time.Minute)
	def(&l.FirstByte, 6*time.Minute)
	def(&l.Idle, 6*time.Minute)
	def(&l.Stall, 15*time.Minute)
	def(&l.Backoff, 500*time.Millisecond)
	def(&l.MaxBackoff, time.Minute)
	def(&l.MaxRetryGap, 30*time.Second)
	def(&l.Patience, 30*time.Minute)
	def(&l.FallbackAfter, time.Minute)
	def(&l.Tell, 2*time.Second)
	num := func(p *int, v int) {
		if *p <= 0 {
			*p = v
		}
	}
	num(&l.Output, 1<<20)
	num(&l.Calls, 64)
	num(&l.Attempts, 4)
	num(&l.Failures, 5)
	num(&l.Parallel, 16)
	if l.Body <= 0 {
		l.Body = 32 << 20
	}
	return l
}
