// Package watch reports which files of a tree may differ from what a full scan found,
// without another scan: the kernel reports what happens in each directory (inotify).
//
// What is written to memory that a file is mapped to is reported when the last one closes
// the file. So it knows of everything when nobody who could write is left; while somebody is,
// it says besides which files were opened since there was nobody. And it knows only what
// has a name in a directory that was watched while it happened. Where
// that does not tell everything (a directory that came, went or moved, more events than
// the kernel keeps, a name that came and is gone, which may have been another name of
// some file), it says that it does not know.
package watch
