package guest

// limiter passes on the first head bytes of a stream at once, keeps the last tail bytes
// until the end, and counts what is between them.
type limiter struct {
	to         sink
	bounded    bool
	head, tail int64
	total      int64
	ring       []byte // at most tail bytes
	at         int    // index of the oldest byte of a full ring
	err        error
}

func newLimiter(to sink, head, tail int64) *limiter {
	return &limiter{to: to, bounded: head > 0 || tail > 0, head: head, tail: tail}
}

func (l *limiter) write(p []byte) error {
	if !l.bounded {
		l.total += int64(len(p))
		return l.to.write(p)
	}
	if room := l.head - l.total; room > 0 {
		n := min(room, int64(len(p)))
		if err := l.to.write(p[:n]); err != nil {
			return err
		}
		l.total += n
		p = p[n:]
	}
	l.total += int64(len(p))
	l.keep(p)
	return nil
}

func (l *limiter) keep(p []byte) {
	tail := int(l.tail)
	if tail == 0 {
		return
	}
	if len(p) >= tail {
		l.ring = append(l.ring[:0], p[len(p)-tail:]...)
		l.at = 0
		return
	}
	if room := tail - len(l.ring); room > 0 {
		n := min(room, len(p))
		l.ring = append(l.ring, p[:n]...)
		p = p[n:]
	}
	for len(p) > 0 {
		n := copy(l.ring[l.at:], p)
		l.at = (l.at + n) % tail
		p = p[n:]
	}
}

// dropped is how many bytes lie between head and tail.
func (l *limiter) dropped() int64 {
	if !l.bounded {
		return 0
	}
	return max(0, l.total-l.head-int64(len(l.ring)))
}

// finish passes on the gap and the tail.
func (l *limiter) finish() error {
	if l.err != nil || !l.bounded {
		return l.err
	}
	if n := l.dropped(); n > 0 {
		if err := l.to.gap(n); err != nil {
			return err
		}
	}
	if len(l.ring) == 0 {
		return nil
	}
	if err := l.to.write(l.ring[l.at:]); err != nil {
		return err
	}
	if l.at > 0 {
		return l.to.write(l.ring[:l.at])
	}
	return nil
}
