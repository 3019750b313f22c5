// Package upkeep is the background maintenance of one computer: it packs the history, drops
// blobs that no event names, and reads, slice by slice, what is seldom read (the log, the
// state, the blobs, the history's objects), so that damage is found while another copy can
// still repair it. What can't be repaired is reported in the log and to the user.
package upkeep
