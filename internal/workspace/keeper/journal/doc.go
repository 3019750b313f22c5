// Package journal makes an act of the keeper durable: all that it writes below .git,
// or nothing of it. The journal, .git/choir/journal, gets the objects, refs and records
// of one act as one entry, written and synced before any of them has its name. Then they
// are put under their names without a sync, which a crash may undo in whole or in part.
// Whoever opens the repository next does it again, entry by entry, before anything is
// read. When the journal is long, or work ends, what it names is synced and it begins
// anew.
//
// What holds of it:
//
//   - An entry counts when its sum is right, and with it every one before it. So of an
//     act either everything is there after a power cut or nothing is, and an act that is
//     there implies all before it.
//   - An entry of an earlier beginning never counts: each has a salt of its own.
//   - Nothing but objects, refs below refs/choir and the records of plans and of the
//     trash is written, whatever a journal says: it may have come with somebody else's
//     .git, and is read as hostile, within bounds.
//   - What can't be taken back when an act fails is not gone on from: nothing more is
//     acknowledged then.
//
// It never opens the live tree, and knows neither what an object holds nor why a record
// is kept.
package journal
