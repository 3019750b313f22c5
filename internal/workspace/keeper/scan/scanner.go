package scan

import (
	"sync/atomic"

	"choir.dev/choiros/internal/workspace/keeper/disk"
	"choir.dev/choiros/internal/workspace/keeper/gitstore"
	"choir.dev/choiros/internal/workspace/keeper/watch"
	"choir.dev/choiros/internal/workspace/keeper/wire"
)

// ScannerOptions say what a scanner works with.
type ScannerOptions struct {
	Store  *gitstore.Store
	Limits wire.Limits
	// May returns why the tree may not be scanned now, nil when it may.
	May func() error
	// Without removes from the candidates those that are nobody's work; with write set, its
	// decision is kept.
	Without func(cap *Capture, cands []Candidate, write bool) ([]Candidate, error)
	// Watched is how many directories may be watched.
	Watched int
	// WatchFault is called with the first paths that had changed without the watch having
	// noticed; the watch has ended then. It may be nil.
	WatchFault func(paths []wire.Path)
}

// Scanner scans one live tree for what differs from what is captured. One scan runs at a
// time, and the index does not change during a scan.
type Scanner struct {
	Root    int // the live tree
	store   *gitstore.Store
	limits  wire.Limits
	may     func() error
	without func(cap *Capture, cands []Candidate, write bool) ([]Candidate, error)

	Index       *Index
	skippedDirs map[string]*skippedDir // by path: directories that were left out because they are in a heap
	scans       uint64                 // the number of scans so far

	slowIgnores map[slowIgnore]bool
	Unkept      atomic.Pointer[Unkept]  // what the newest scan of the live tree left out
	known       known                   // what is known without scanning
	watch       *watch.Watch            // of changes to the directories by others than the engine
	watchFault  func(paths []wire.Path) // is called with what the watch did not notice
	noted       noted                   // when it was last noted which files were opened
	watchCovers bool                    // whether the watch covers the scan under way and what comes after it, although others write
	expected    map[string]bool         // what the watch says that the scan under way will find; nil when it says nothing
}

// NewScanner returns a scanner that has no tree yet.
func NewScanner(o ScannerOptions) *Scanner {
	return &Scanner{Root: -1, store: o.Store, limits: o.Limits, may: o.May, without: o.Without, slowIgnores: map[slowIgnore]bool{},
		watch: watch.New(o.Watched), watchFault: o.WatchFault}
}

// Tracked is a captured path: its entry in HEAD, and the file state in which it was seen to
// have that content. A zero state means that it must be hashed to know.
type Tracked struct {
	gitstore.Entry
	Stat disk.Stat
}
