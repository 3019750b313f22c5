// Package fleet holds the computers of one machine: which there are, waking and
// putting to sleep, what keeps one from waking and what can be done about it, and
// what they share: models and what is spent on them, the network's policy,
// secrets, space. One computer's failure is never another's.
package fleet
