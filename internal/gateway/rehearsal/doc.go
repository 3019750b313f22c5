// Package rehearsal stands in for a model: it plays documented, deterministic plans from files. It
// understands nothing of a prompt, and its texts say so.
package rehearsal
