// Package quota bounds what clients have stored in the log: what a browser, or a
// program with a token, appends in its user's name, by session, by computer and by
// day.
package quota
