package wire

import (
	"fmt"
	"strconv"
)

// Limits bound one checkpoint; what exceeds them is skipped and listed.
type Limits struct {
	// FileBytes is the size above which a file is kept as chunks; 100 MiB when 0. A
	// computer's history depends on it: with another value the same large file has another
	// entry.
	FileBytes   int64
	LargestFile int64 // largest file that is captured; 16 GiB when 0
	ChunkBytes  int64 // most that chunks may take on the disk; 64 GiB when 0
	Files       int   // most files and empty directories in a tree; 200,000 when 0
	NewBytes    int64 // most new content in one checkpoint, without large files; 4 GiB when 0
	WalkEntries int   // most directory entries read in a scan; 3,000,000, and four times Files at least, when 0
}

// MaxContains bounds each list of a ContainsRequest.
const MaxContains = 64

// WithDefaults returns the limits with defaults in place of zeros.
func (l Limits) WithDefaults() Limits {
	if l.FileBytes <= 0 {
		l.FileBytes = 100 << 20
	}
	if l.LargestFile <= 0 {
		l.LargestFile = 16 << 30
	}
	if l.ChunkBytes <= 0 {
		l.ChunkBytes = 64 << 30
	}
	if l.Files <= 0 {
		l.Files = 200_000
	}
	if l.NewBytes <= 0 {
		l.NewBytes = 4 << 30
	}
	if l.WalkEntries <= 0 {
		l.WalkEntries = max(3_000_000, 4*l.Files)
	}
	return l
}

// Environment variables by which the limits that a computer's owner sets reach the keeper's
// box.
const (
	envLargestFile = "CHOIR_KEEPER_LARGEST_FILE"
	envChunkBytes  = "CHOIR_KEEPER_CHUNK_BYTES"
	envFiles       = "CHOIR_KEEPER_FILES"
)

// Env returns the environment that LimitsFrom reads.
func (l Limits) Env() map[string]string {
	return map[string]string{envLargestFile: strconv.FormatInt(l.LargestFile, 10), envChunkBytes: strconv.FormatInt(l.ChunkBytes, 10), envFiles: strconv.Itoa(l.Files)}
}

// LimitsFrom returns the limits that an environment sets; the others are the defaults.
func LimitsFrom(env map[string]string) (Limits, error) {
	var l Limits
	var files int64
	for name, to := range map[string]*int64{envLargestFile: &l.LargestFile, envChunkBytes: &l.ChunkBytes, envFiles: &files} {
		text, set := env[name]
		if !set {
			continue
		}
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil || n <= 0 {
			return l, fmt.Errorf("%s is %q, which is no size", name, Short(text))
		}
		*to = n
	}
	l.Files = int(files)
	return l, nil
}

// MaxSkips is how many paths are listed in each list of what was left out, damaged or set
// aside.
const MaxSkips = 200
