package disk

// AtStep has f called at each point of a Put where a crash leaves another
// trace: created, written, synced, renamed, done.
func (d *Store) AtStep(f func(point string)) { d.step = f }
