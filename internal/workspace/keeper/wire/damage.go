package wire

// Aside is the record of a publish that was set aside: its name among the
// unreadable ones, and the publish.
type Aside struct {
	Name    string `json:"name"`
	Publish string `json:"publish"`
}

// FindRequest asks for contents by their SHA-256 in hex, at most 200. The search
// ends after so many bytes or milliseconds (256 MiB and 20 seconds when 0).
type FindRequest struct {
	SHA256 []string `json:"sha256"`
	Bytes  int64    `json:"bytes,omitempty"`
	Millis int64    `json:"millis,omitempty"`
}

// Found is where a content is: exactly one of a live file, a trash entry and a blob of the
// history, which may be the manifest of the chunks with the content.
type Found struct {
	SHA256  string `json:"sha256"`
	Path    Path   `json:"path,omitempty"`
	Trash   string `json:"trash,omitempty"`
	Object  string `json:"object,omitempty"`
	Chunked bool   `json:"chunked,omitempty"`
}

// FindReply is what was found. Partial says that not everything was looked into.
type FindReply struct {
	Found   []Found `json:"found,omitempty"`
	Partial bool    `json:"partial,omitempty"`
}

// RepairRequest asks to repair the history after damage; Seq is for the new commit.
type RepairRequest struct {
	Seq uint64 `json:"seq,omitempty"`
}

// RepairReply says what was repaired: nothing when Checkpoint is nil.
type RepairReply struct {
	Broken     string           `json:"broken,omitempty"`
	Reason     string           `json:"reason,omitempty"`
	From       string           `json:"from,omitempty"` // the last undamaged checkpoint
	Checkpoint *CheckpointReply `json:"checkpoint,omitempty"`
}

// DamagedFile is the file, relative to the tree's root, that records that a checkpoint was
// found damaged and that the history continues from one before it.
func DamagedFile(id string) string { return ".git/choir/damaged/head-" + id }

// ScrubRequest bounds one slice: it ends after so many objects, bytes or
// milliseconds, whichever comes first (2000, 64 MiB and 2 seconds when 0).
// Restart begins at the newest checkpoint again.
type ScrubRequest struct {
	Objects int   `json:"objects,omitempty"`
	Bytes   int64 `json:"bytes,omitempty"`
	Millis  int64 `json:"millis,omitempty"`
	Restart bool  `json:"restart,omitempty"`
}

// Damage is an object whose content is not what its name says: where it was first met, and
// what it was restored from ("" when there is no copy).
type Damage struct {
	ID     string `json:"id"`
	Kind   string `json:"kind"` // commit, tree, blob, manifest, chunk
	Commit string `json:"commit"`
	Path   Path   `json:"path,omitempty"`
	Reason string `json:"reason"` // such as: is missing, can't be read, differs from its name
	Healed string `json:"healed,omitempty"`
}

// ScrubReply is what a slice found. Done ends a pass: the next slice begins
// another. Objects and Bytes are those of the pass so far.
type ScrubReply struct {
	Done    bool     `json:"done"`
	Objects int      `json:"objects"`
	Bytes   int64    `json:"bytes"`
	Damaged []Damage `json:"damaged,omitempty"` // of this slice
	More    int      `json:"more,omitempty"`    // damaged beyond the 200 listed
	// Aside are the newest records of publishes that could not be followed, of this
	// slice and before; at most 200.
	Aside []Aside `json:"aside,omitempty"`
}

// Healed is a file that was restored; its damaged content is in the trash.
type Healed struct {
	Path   Path   `json:"path"`
	Reason string `json:"reason"`
	Trash  string `json:"trash,omitempty"`
}

// HealReply lists what was restored, and what could not be.
type HealReply struct {
	Checkpoint string   `json:"checkpoint,omitempty"` // the checkpoint it was restored from
	Healed     []Healed `json:"healed,omitempty"`
	Lost       []Healed `json:"lost,omitempty"` // damaged, and so is the checkpoint's copy
	// Suspect are new files in no checkpoint that a crash may have emptied (see package
	// outage).
	Suspect []Healed `json:"suspect,omitempty"`
}
