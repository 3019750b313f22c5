// Package names translates a path of the live tree into the path that it has in a commit,
// and back. Git, and servers that check what is pushed to them, refuse some names that a
// tree may hold: `.git` (a nested repository's) in any case; names that HFS+ or NTFS read
// as `.git`; `.gitmodules`, whose content is checked as well; and `.gitattributes`,
// `.gitignore` and `.mailmap` as a link or folder. Such names get a suffix; so does every
// name that already looks as if it had one. If a suffix does not help (the name is special
// only to an odd file system) the name is written in hex. An empty directory is kept as a
// marker file inside it, and a large file as a manifest under its name with a suffix of its
// own.
//
// Every name is translated back to what it was, no two names become one, and git's fsck
// refuses none of them.
//
// The package never opens a file: it looks at names only, never at what they name.
package names
