// Package names says how a path of the live tree is written in a commit, and back. Git,
// and servers that check what is pushed to them, refuse some names that a tree may hold:
// `.git` (a nested repository's) in any case; what HFS+ or NTFS take for it;
// `.gitmodules`, whose content is checked as well; and `.gitattributes`, `.gitignore` and
// `.mailmap` as a link or folder. They get a suffix; so does every name that already looks
// as if it had one. Where a suffix does not help (a name that only an odd file system reads
// that way) the name is written in hex. An empty directory is kept as a marker file inside
// it, and a large file as a manifest under its name with a suffix of its own.
//
// What holds of it: every name comes back as it was, no two become one, and none that is
// written is refused by git's fsck.
//
// It never opens a file, and looks at names only, never at what they name.
package names
