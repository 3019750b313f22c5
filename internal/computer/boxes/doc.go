// Package boxes opens the boxes of one computer: of each kind what it sees, what it
// may use and where it may reach, the user's terminals and the keeper's among them,
// and what lock files name, installed for checks.
package boxes
