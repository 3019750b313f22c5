package wire

// InvertRequest asks to take a task's live edits back: a three-way merge from
// what was published to what was there before, prepared under ID.
type InvertRequest struct {
	ID   string `json:"id"`
	Task string `json:"task"`
	Base string `json:"base"` // what the task started from
	Note Note   `json:"note"`
}

// TreeRequest asks for the tree of a task: Base with what the overlay's Upper
// (a path among the computer's boxes) changes. ID names the ref that keeps it.
type TreeRequest struct {
	ID    string `json:"id"`
	Base  string `json:"base"`
	Upper string `json:"upper"`
	Note  Note   `json:"note"`
}

// TreeReply is a task's tree, as a commit on Base under refs/choir/task/.
type TreeReply struct {
	Commit  string   `json:"commit"`
	Tree    string   `json:"tree"`
	Base    string   `json:"base"`
	Changes []Change `json:"changes"`
	More    int      `json:"more,omitempty"`
	Left    []Skip   `json:"left,omitempty"`
}

// KeptSuffix ends the ID of a tree that outlives its overlay.
const KeptSuffix = "-kept"

// KeptRequest asks for the trees whose ID ends in KeptSuffix. The refs of those that were
// made before Before, in seconds since 1970, and with Most above 0 of all but so many of
// the newest, are removed first, but never that of the ID But.
type KeptRequest struct {
	Most   int    `json:"most,omitempty"`
	Before int64  `json:"before,omitempty"`
	But    string `json:"but,omitempty"`
}

// KeptReply lists the trees that have a ref, newest first, and the IDs of those whose ref
// was removed.
type KeptReply struct {
	Trees   []KeptTree `json:"trees"`
	Removed []string   `json:"removed,omitempty"`
}

// KeptTree is one kept tree. ID is that of its overlay, without KeptSuffix.
type KeptTree struct {
	ID     string `json:"id"`
	Commit string `json:"commit"`
	At     int64  `json:"at"` // when it was made, in milliseconds since 1970
}

// MaxFilled bounds how many folders one FilledRequest asks about.
const MaxFilled = 4096

// FilledRequest asks which of the Folders, paths in what the boxes of a task
// wrote (ID names it), hold anything.
type FilledRequest struct {
	ID      string `json:"id"`
	Folders []Path `json:"folders"`
}

// FilledReply lists them, as indices into Folders.
type FilledReply struct {
	Filled []int `json:"filled,omitempty"`
}

// PrepareRequest asks for a three-way merge of Tree, which was made from Base,
// into the live tree as it is now. With Paths only changes under them count.
// Live publishing remembers per Task what of its tree was published; it, and
// the task's last publish, merge only what came since.
type PrepareRequest struct {
	ID    string `json:"id"`
	Base  string `json:"base"` // commit or tree
	Tree  string `json:"tree"` // commit or tree
	Paths []Path `json:"paths,omitempty"`
	Live  bool   `json:"live,omitempty"`
	Task  string `json:"task,omitempty"` // names the task's live publishing
	Kind  string `json:"kind,omitempty"` // publish when empty, or invert
	Note  Note   `json:"note"`
	// Pushed is the commit of Tree if it was received by a push: it becomes a second
	// parent, beside the newest checkpoint. Paths that no checkpoint takes are not merged
	// from it. Received is the ID with which it was received.
	Pushed   string `json:"pushed,omitempty"`
	Received string `json:"received,omitempty"`
	// Whole says that nothing is prepared, and nothing written, if anything conflicts.
	Whole bool `json:"whole,omitempty"`
}

// Parents are the further parents of the publish's commit: what was pushed.
func (r PrepareRequest) Parents() []string {
	if r.Pushed == "" {
		return nil
	}
	return []string{r.Pushed}
}

// ReceiveRequest brings what was pushed into the history of the computer's own files:
// commits up to Tip, which build on the checkpoint Base, as a list of all their objects
// that Base does not have, of Most bytes at most. They lie beside the history under ID until
// a publish of them is begun or ID is dropped.
type ReceiveRequest struct {
	ID   string `json:"id"`
	Base string `json:"base"`
	Tip  string `json:"tip"`
	Most int64  `json:"most"`
}

// ReceiveReply says how many commits came, and the subject line of the last one.
type ReceiveReply struct {
	Commits int    `json:"commits"`
	Subject string `json:"subject"`
}

// PrepareReply is the merge: Commit is its commit, on top of Live, not yet in
// the history; Changed the paths that it changes. Done means that this id was
// applied before.
type PrepareReply struct {
	ID         string          `json:"id"`
	Live       CheckpointReply `json:"live"`
	Commit     string          `json:"commit"`
	Tree       string          `json:"tree"`
	Changed    []Path          `json:"changed"`
	Conflicts  []Conflict      `json:"conflicts,omitempty"`
	Identical  bool            `json:"identical"` // the merged tree is the task's tree
	Done       bool            `json:"done,omitempty"`
	Nothing    bool            `json:"nothing,omitempty"` // there is nothing to change
	CommitNote Commit          `json:"commit_note"`
	Base       string          `json:"base,omitempty"` // commit it started from
	IsLive     bool            `json:"is_live,omitempty"`
}

// ApplyReply is the outcome of a plan, and the checkpoint after it if the live tree
// contains more than the plan put there (because the user was at work).
type ApplyReply struct {
	Applied
	After *CheckpointReply `json:"after,omitempty"`
}

// SettleUpperRequest names the upper of an overlay, a path under Options.Uppers, and at most
// MaxFilled paths of the tree of which the caller wants to know whether the upper changes them.
type SettleUpperRequest struct {
	Upper string `json:"upper"`
	Paths []Path `json:"paths,omitempty"`
}

// SettleUpperReply says whether the upper may change any of the request's paths, or anything
// beneath them. Where it says no, it does not.
type SettleUpperReply struct {
	Touched bool `json:"touched"`
}

// Conflict is a path that stays as the user has it, and the reason.
type Conflict struct {
	Path   Path   `json:"path"`
	Reason string `json:"reason"`
}

// Applied is the outcome of a plan. Commit is the commit that contains it.
type Applied struct {
	Publish   string     `json:"publish"`
	Kind      string     `json:"kind"`
	Base      string     `json:"base,omitempty"`
	Live      bool       `json:"live,omitempty"`
	Paths     int        `json:"paths"`
	Commit    Commit     `json:"commit"`
	Conflicts []Conflict `json:"conflicts,omitempty"`
}
