// Package archive unpacks an untrusted tar stream into a new directory.
//
// It guarantees the following. No entry is written, hard-linked or otherwise put outside of
// that directory, whatever its name and whatever came before it. Entries and bytes are
// bounded. What is no file, folder or link is left out and listed. A stream that ended
// early is refused. A .git in it is data, of which nothing is run.
//
// It never gives the directory its name in the live tree, nor removes what it has unpacked
// when it fails: the caller does that.
package archive
