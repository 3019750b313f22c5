// Package upkeep is what a computer does unasked while nobody works in it: it packs the
// history, drops blobs that no event names, and reads, slice by slice, what nobody asks
// for (the log, the state, the blobs, the history's objects), so that damage is found
// while another copy can still heal it. What nothing heals is told in the log and where
// the user looks.
package upkeep
