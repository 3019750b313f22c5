package ledger

// AtStep has f called at each point of an append where a crash leaves another
// trace: stamped, sent, acknowledged, accepted.
func (o Options) AtStep(f func(point string)) Options {
	o.step = f
	return o
}
