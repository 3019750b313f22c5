package disk

// AtStep sets a function that is called at each point of a Put at which a crash leaves a different
// state: created, written, synced, renamed, done.
func (d *Store) AtStep(f func(point string)) { d.step = f }
