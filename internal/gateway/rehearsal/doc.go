// Package rehearsal plays documented, deterministic plans from files where a
// model would answer. It understands nothing, and its texts say so.
package rehearsal
