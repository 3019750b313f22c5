// Package devserver passes a browser's requests to the dev server in a desktop's box, and
// its answers back. Agents wrote what that server runs, so the package decides which
// headers of a request it may see, which paths may be asked for, and what of its answer a
// browser may see.
package devserver
