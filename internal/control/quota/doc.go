// Package quota bounds how much clients add to the log: what a browser, or a program with a
// token, appends in its user's name, per session, per computer and per day.
package quota
