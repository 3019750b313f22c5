// Package reader fetches a page and makes text of it, or sends a request and makes text of its answer. It is for a program in a box that has nothing else in it
// and no way out but to the page's host (cmd/choir-reader): what it parses may be made to break it.
package reader
