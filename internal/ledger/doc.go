// Package ledger holds a computer's log: the appender, which is its only
// writer, and reading and following it without gaps.
//
// A log is the messages of one JetStream stream of its own, under log.{cid}.>, each of
// which holds what was appended together, one event a line. The
// appender stamps a dense sequence, recognises repeated appends, offers
// compare-and-append per subject, and fences off every other owner: each
// publish names the stream position that must still be the log's last.
// An append returns only after the server has synced its events to disk.
package ledger
