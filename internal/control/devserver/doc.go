// Package devserver hands a browser's requests to the dev server in a desktop's
// box, and its answers back. What that server runs was written by agents, so the
// package says what of a request it may see, which paths may be asked for, and what
// of its answer a browser may see.
package devserver
