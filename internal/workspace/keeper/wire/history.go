package wire

import (
	"slices"
	"strings"
)

// Skip is a path that was left out of a checkpoint, and why.
type Skip struct {
	Path   Path   `json:"path"`
	Reason string `json:"reason"`
	// Files is how many it stands for, when that is known and more than one.
	Files int `json:"files,omitempty"`
	// Kept says that the path itself is in the checkpoint, and only its effect is ignored.
	Kept bool `json:"kept,omitempty"`
}

// Note is what a commit records in its trailers.
type Note struct {
	Kind     string `json:"kind"`
	Message  string `json:"message"`
	Seq      uint64 `json:"seq"` // last sequence projected and mirrored before it
	Run      string `json:"run,omitempty"`
	Task     string `json:"task,omitempty"`
	At       int64  `json:"at,omitempty"` // Unix milliseconds, within the commit's second
	Verified string `json:"verified"`     // pass, fail or unknown
	Files    int    `json:"files"`        // paths changed against the parent
	// Actor, a contract.ActorName, is who asked for the commit, and User the account. They
	// are empty if nobody asked for it, and in commits from before they were recorded.
	Actor string `json:"actor,omitempty"`
	User  string `json:"user,omitempty"`
	NotIn
	Publish string   `json:"publish,omitempty"`
	Restore *Restore `json:"restore,omitempty"`
}

// NotIn is what a commit records of paths that it does not contain although they existed:
// those that could not be captured, and ignored ones.
type NotIn struct {
	Skipped      []string `json:"skipped,omitempty"`       // the first, and why
	SkippedFiles int      `json:"skipped_files,omitempty"` // how many files that is altogether
	IgnoredPaths []string `json:"ignored_paths,omitempty"` // the first
	IgnoredCount int      `json:"ignored_count,omitempty"` // of files and folders
}

// Restore is what a restoring commit records: where it went, and what was before.
type Restore struct {
	To     string `json:"to"`
	Safety string `json:"safety"`
	Paths  []Path `json:"paths,omitempty"`
	Part   bool   `json:"part,omitempty"` // it changed only what this commit changes, which is more paths than can be listed
	Undo   bool   `json:"undo,omitempty"`
	// Actor and User are who asked, in commits from before they were fields of the note.
	Actor string `json:"actor,omitempty"`
	User  string `json:"user,omitempty"`
	Cause string `json:"cause,omitempty"` // id of the event that caused it
}

// Commit is one checkpoint.
type Commit struct {
	Commit string `json:"commit"`
	Parent string `json:"parent,omitempty"`
	Tree   string `json:"tree"`
	Time   int64  `json:"time"` // Unix seconds
	Note
}

// RestoreRequest asks to make the tree, or paths of it, as in To. ID identifies the
// restore's plan. Undo goes to the state before the newest restore. Revert undoes the
// changes of these commits, newest first, and nothing else: those at Except and beneath it
// stay, for they are not what is meant by the commits.
type RestoreRequest struct {
	ID     string     `json:"id"`
	To     string     `json:"to,omitempty"`
	Paths  []Path     `json:"paths,omitempty"`
	DryRun bool       `json:"dry_run,omitempty"`
	Undo   bool       `json:"undo,omitempty"`
	Revert []Reverted `json:"revert,omitempty"`
	Except []Path     `json:"except,omitempty"`
	Cause  string     `json:"cause,omitempty"` // id of the event that caused it
	// Keep are files whose content the tree does not decide: in a restore of everything,
	// those that exist stay as they are.
	Keep []Path `json:"keep,omitempty"`
	Note Note   `json:"note"`
}

// Reverted is a commit to undo; with Publish, only if that publish made it: a publish with
// nothing to change names another's commit.
type Reverted struct {
	Commit  string `json:"commit"`
	Publish string `json:"publish,omitempty"`
}

// RestoreReply is what a restore did or, with DryRun, would do; both follow the same plan.
type RestoreReply struct {
	To        string           `json:"to"`
	Paths     []Path           `json:"paths,omitempty"`
	Undo      bool             `json:"undo,omitempty"`
	Safety    *CheckpointReply `json:"safety,omitempty"`
	DiffReply                  // what changes, without text; and does not stay as it is
	// Conflicts are paths that stay as they are, or would.
	Conflicts []Conflict  `json:"conflicts,omitempty"`
	LeftOut               // what no checkpoint has, and stays as it is
	Applied   *ApplyReply `json:"applied,omitempty"`
}

// Stay records which paths stay as they are, and why.
func (r *RestoreReply) Stay(conflicts []Conflict) {
	r.Conflicts = conflicts
	paths := make([]Path, len(conflicts))
	for i, c := range conflicts {
		paths[i] = c.Path
	}
	r.Unchanged(paths)
}

// Unchanged removes paths from the changes.
func (r *RestoreReply) Unchanged(paths []Path) {
	stays := make(map[Path]bool, len(paths))
	for _, p := range paths {
		stays[p] = true
	}
	r.Changes = slices.DeleteFunc(r.Changes, func(c Change) bool { return stays[Path(strings.TrimSuffix(string(c.Path), "/"))] })
}

// LeftOut is what was left out of a checkpoint: what could not be captured, and what is
// ignored. Total counts the files of Left; Outside the ignored files and folders, of which
// Ignored lists the first.
type LeftOut struct {
	Left    []Skip `json:"left,omitempty"`
	Total   int    `json:"total,omitempty"`
	Ignored []Skip `json:"ignored,omitempty"`
	Outside int    `json:"outside,omitempty"`
}

// IsUnder reports whether a path is a directory or in it; everything is in "".
func IsUnder(p, dir string) bool { return dir == "" || p == dir || strings.HasPrefix(p, dir+"/") }

// CountFiles counts the files that were left out.
func CountFiles(skips []Skip) int {
	n := 0
	for _, s := range skips {
		if !s.Kept {
			n += max(1, s.Files)
		}
	}
	return n
}

// Under returns the part that is in a directory. A directory that is too large for one
// checkpoint counts for each directory inside it, too.
func (l LeftOut) Under(dir string) LeftOut {
	out := LeftOut{}
	for _, s := range l.Left {
		if IsUnder(string(s.Path), dir) || s.Files > 0 && IsUnder(dir, string(s.Path)) {
			out.Left = append(out.Left, s)
		}
	}
	for _, s := range l.Ignored {
		if IsUnder(string(s.Path), dir) {
			out.Ignored = append(out.Ignored, s)
		}
	}
	out.Total, out.Outside = CountFiles(out.Left), l.Outside-len(l.Ignored)+len(out.Ignored)
	return out
}

// Add adds more that could not be captured.
func (l *LeftOut) Add(more LeftOut) {
	l.Left = append(l.Left, more.Left...)
	l.Total += more.Total
}

// Since returns what was not left out before, as far as both lists are complete.
func (l LeftOut) Since(before LeftOut) LeftOut {
	fresh := func(now, then []Skip) (out []Skip) {
		old := make(map[Skip]bool, len(then))
		for _, s := range then {
			old[s] = true
		}
		for _, s := range now {
			if !old[s] {
				out = append(out, s)
			}
		}
		return out
	}
	out := LeftOut{Left: fresh(l.Left, before.Left)}
	out.Total = CountFiles(out.Left)
	if before.Outside <= len(before.Ignored) { // otherwise an unlisted path could be an old one
		out.Ignored = fresh(l.Ignored, before.Ignored)
		out.Outside = l.Outside - len(l.Ignored) + len(out.Ignored)
	}
	return out
}

// MaxLayers bounds how many layers a snapshot has.
const MaxLayers = 8

// SnapshotReply names a snapshot's layers, directories among the computer's
// snapshots: the topmost first, as an overlay takes them.
type SnapshotReply struct {
	Commit string   `json:"commit"`
	Tree   string   `json:"tree"`
	Layers []string `json:"layers"`
}

// CheckpointRequest asks for a checkpoint; Force makes one even if nothing changed. Under
// limits the reported ignored paths to a folder. Look scans everything, whatever is known
// about who could write; HostWatched scans everything unless what programs on the host write is
// known as well. Whole lets the first checkpoint of a history contain all files, even
// ignored ones, however many bytes they have: another computer's checkpoint contained them.
type CheckpointRequest struct {
	Note
	Whole       bool `json:"whole,omitempty"`
	FullScan    bool `json:"full_scan,omitempty"`
	HostWatched bool `json:"host_watched,omitempty"`
	Force       bool `json:"force,omitempty"`
	Under       Path `json:"under,omitempty"`
}

// CheckpointReply is the newest checkpoint, whether it was made now, and what was left out
// of it.
type CheckpointReply struct {
	Commit
	Created bool `json:"created"`
	// Puts are checkpoints that were made before it, of put files that a program has
	// changed or removed since.
	Puts      []Commit `json:"puts,omitempty"`
	NamesRead int      `json:"names_read,omitempty"` // how many names the scan of the tree read
	LeftOut
	// Unseen are the first paths that changed without the tree's watch noticing.
	Unseen []Path `json:"unseen,omitempty"`
	// Unwatched is why the tree is not watched, so that each scan is a full one.
	Unwatched string `json:"unwatched,omitempty"`
}

// ListRequest asks for checkpoints, newest first: at most Limit (100 when 0),
// older than Before when that is set, down to but without Until.
type ListRequest struct {
	Limit  int    `json:"limit,omitempty"`
	Before string `json:"before,omitempty"`
	Until  string `json:"until,omitempty"`
}

// Change is one path that differs. Added and Removed count lines, -1 when the
// content is binary.
type Change struct {
	Path    Path   `json:"path"`
	Op      string `json:"op"` // added, modified, deleted, mode
	Added   int    `json:"added"`
	Removed int    `json:"removed"`
}

// DiffRequest asks what differs between From and To, each a commit or tree; without To it
// is the live tree as it is now. Paths limits it. At most MaxBytes of unified diff are returned (1 MiB
// when 0, none when negative).
type DiffRequest struct {
	From     string `json:"from"`
	To       string `json:"to,omitempty"`
	Paths    []Path `json:"paths,omitempty"`
	MaxBytes int    `json:"max_bytes,omitempty"`
	Metadata bool   `json:"metadata,omitempty"` // also what is inside nested repositories' .git
	Index    bool   `json:"index,omitempty"`    // also nested repositories of which only the index differs
}

// DiffReply is what differs. Repositories lists nested repositories whose own .git changed
// in more than its index, which mere reading rewrites; Obeyed lists, at most 200, the paths
// in them that git runs or obeys. Paths in the unified diff are those of commits.
type DiffReply struct {
	Changes      []Change `json:"changes"`
	Repositories []Change `json:"repositories,omitempty"`
	Obeyed       []Change `json:"obeyed,omitempty"`
	Diff         string   `json:"diff,omitempty"` // invalid UTF-8 replaced
	Truncated    bool     `json:"truncated,omitempty"`
	More         int      `json:"more,omitempty"` // changes beyond the 10,000 listed
}

// StatusReply is how the live tree differs from the newest checkpoint.
type StatusReply struct {
	Head         string   `json:"head"`
	Tree         string   `json:"tree"`
	Changes      []Change `json:"changes"`         // without line counts
	Bytes        int64    `json:"bytes,omitempty"` // what is in files that changed
	Left         []Skip   `json:"left,omitempty"`
	Ignored      []Path   `json:"ignored,omitempty"`      // directories
	Repositories []Path   `json:"repositories,omitempty"` // nested
	Pending      []string `json:"pending,omitempty"`      // publishes that are not finished
	More         int      `json:"more,omitempty"`
}

// ObjectRequest names a path of a commit; no commit means the newest checkpoint.
type ObjectRequest struct {
	Commit string `json:"commit,omitempty"`
	Path   Path   `json:"path"`
}

// CollectReply is the result of a collection of unreachable chunks. Commits counts the
// commits that it read; what earlier commits of the main line need is remembered from the
// last collection.
type CollectReply struct {
	Removed int   `json:"removed"`
	Bytes   int64 `json:"bytes"`
	Kept    int   `json:"kept"`
	Commits int   `json:"commits"`
}
