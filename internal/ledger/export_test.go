package ledger

// Queued returns how many appends wait for the committer.
func (l *Log) Queued() int { return len(l.queue) }

// AtStep makes a Log call f at each point of an append where a crash leaves a different
// state: stamped, sent, acknowledged, accepted.
func (o Options) AtStep(f func(point string)) Options {
	o.step = f
	return o
}
