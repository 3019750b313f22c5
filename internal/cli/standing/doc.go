// Package standing is how a run stands, for people and for programs: what choir prompt, wait
// and runs show of it, whom it waits for, and what happens in it while somebody waits.
package standing
