// Package fleet holds the computers of one machine: which exist, waking them and putting
// them to sleep, what keeps one from waking and what can be done about it, and what they
// share: models and what is spent on them, the network policy, secrets, disk space. One
// computer's failure never affects another.
package fleet
