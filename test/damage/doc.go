// Package damage spoils the data directory of a computer, part by part and way by
// way, and looks at what bin/choir does with it: nothing is lost, or nothing is
// written and who looks is told; `choir recover` brings back what anything else
// knows. Part of `make chaos`.
package damage
