// Package damage damages the data directory of a computer, each part in each way, and checks what
// bin/choir does: either nothing is lost, or nothing is written and the user is told. `choir
// recover` restores what another part of the directory still has. It belongs to `make chaos`.
package damage
