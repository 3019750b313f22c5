// Package verbs is the verbs that ask a control plane, wherever it runs: they know
// its client and the command line, and nothing of what answers them. What starts,
// stops or looks into a control plane of this machine is in cmd/choir.
package verbs
