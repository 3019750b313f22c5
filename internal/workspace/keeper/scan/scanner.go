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
	// May says why the tree may not be looked at now, nil when it may.
	May func() error
	// Without leaves out of what was seen what is nobody's work, for good when
	// write is set.
	Without func(cap *Capture, cands []Candidate, write bool) ([]Candidate, error)
	// Watched is how many directories may be watched.
	Watched int
	// WatchFault is told the first paths that were other than they had been and that
	// the watch had not seen; there is none any more then. Nil when nobody is.
	WatchFault func(paths []wire.Path)
}

// Scanner looks at one live tree and finds what differs from what is captured.
// One look is taken at a time, and the index changes in no look.
type Scanner struct {
	Root    int // the live tree
	store   *gitstore.Store
	limits  wire.Limits
	may     func() error
	without func(cap *Capture, cands []Candidate, write bool) ([]Candidate, error)

	Index       *Index
	skippedDirs map[string]*skippedDir // by path: directories that were left out because they are in a heap
	looks       uint64                 // how many looks at the tree there were

	slowIgnores map[slowIgnore]bool
	Left        atomic.Pointer[Left]    // what the newest look at the live tree left out
	known       known                   // without looking
	watch       *watch.Watch            // of the directories, by somebody else than the engine
	watchFault  func(paths []wire.Path) // is told what the watch did not see
	noted       noted                   // when it was noted which files were opened
	goesOn      bool                    // what the look under way finds, and what comes after it, is told by the watch while others write
	foretold    map[string]bool         // what the look under way will find to differ, as the watch says; nil when it says nothing
}

// NewScanner returns a scanner that has no tree yet.
func NewScanner(o ScannerOptions) *Scanner {
	return &Scanner{Root: -1, store: o.Store, limits: o.Limits, may: o.May, without: o.Without, slowIgnores: map[slowIgnore]bool{},
		watch: watch.New(o.Watched), watchFault: o.WatchFault}
}

// Tracked is a captured path: what HEAD holds, and the file state in which it
// was seen to hold that. A zero stat means it must be hashed to know.
type Tracked struct {
	gitstore.Entry
	Stat disk.Stat
}
