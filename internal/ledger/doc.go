// Package ledger holds a computer's log. A Log appends to it, of which it is the only
// writer, and reads and follows it without gaps.
//
// A log is a JetStream stream of its own, under log.{cid}.>. Each of its messages holds
// what was appended together, one event a line. The Log numbers events without gaps,
// recognises repeated appends, offers compare-and-append per subject, and fences off every
// other owner: each publish names the stream position that must still be the log's last. An
// append returns only after the server has synced its events to disk.
package ledger
