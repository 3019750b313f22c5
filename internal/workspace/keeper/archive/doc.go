// Package archive unpacks a tar stream that nobody vouches for into a new directory.
//
// What holds of it: no entry lies, links hard or is written outside of that directory,
// whatever its name and whatever came before it; entries and bytes are bounded; what is no
// file, folder or link is left out and listed; and a stream that did not come to its
// sender's end is refused. A .git in it is data, of which nothing is run.
//
// It never gives the directory its name in the live tree, nor removes what it has unpacked
// when it fails: that is who asked for it to do.
package archive
