package wire

// FileInfo is one entry of the live tree.
type FileInfo struct {
	Path   Path   `json:"path"`
	Kind   string `json:"kind"` // file, dir, symlink, fifo, socket, device
	Size   int64  `json:"size"`
	Exec   bool   `json:"exec,omitempty"`
	Time   int64  `json:"time"`             // modification, Unix milliseconds
	Target Path   `json:"target,omitempty"` // of a symlink
	ID     string `json:"id,omitempty"`     // blob id, from Stat and Write: what If compares with
	// Unkept says why no checkpoint will hold the file as it is; it is "" if one does or
	// the next one will. For a directory, Beneath counts the paths in it that no checkpoint
	// will hold, as of the last scan of the tree.
	Unkept  string `json:"unkept,omitempty"`
	Beneath int    `json:"beneath,omitempty"`
}

// WriteRequest says where a file goes, and whether it is executable: as what it
// replaces when Exec is nil. If, when set, is the id of what must be there (of its
// content, or of the state in which it was opened), "any" when something must, or
// "none" when nothing may be. Actor (a
// contract.ActorName) and User, its account, are whose hand it was,
// for an event that a crash kept from being appended. With Held the host holds
// both what it writes and what If names, so neither goes to the trash and nothing
// is told.
type WriteRequest struct {
	Path  Path   `json:"path"`
	Exec  *bool  `json:"exec,omitempty"`
	If    string `json:"if,omitempty"`
	Held  bool   `json:"held,omitempty"`
	Actor string `json:"role,omitempty"`
	User  string `json:"user,omitempty"`
}

// Written is the result of a write: the file, its content's SHA-256 in hex, and the trash
// entry with what was there before ("" if nothing was). Op and At (Unix milliseconds)
// identify the operation; the host calls OperationsLogged when the operation's event is in its log.
type Written struct {
	FileInfo
	SHA256 string `json:"sha256"`
	Trash  string `json:"trash,omitempty"`
	Op     string `json:"op"`
	At     int64  `json:"at"`
	Named  bool   `json:"named,omitempty"`
}

// TrashRequest asks for what is in the trash, newest first: at most Limit
// entries, which are older than the entry Before when that is not empty.
type TrashRequest struct {
	Before string `json:"before,omitempty"`
	Limit  int    `json:"limit,omitempty"`
}

// TrashItem is what was removed or overwritten, and by what: remove, write, merge
// or heal.
type TrashItem struct {
	Trashed
	Op   string `json:"op"`
	User string `json:"user,omitempty"`
	Kind string `json:"kind"`
	Size int64  `json:"size"` // of a file
}

// TrashReply lists the trash. More says that there are older entries.
type TrashReply struct {
	Items []TrashItem `json:"items"`
	More  bool        `json:"more,omitempty"`
}

// Operation is a change of the live tree that took effect and that the host has not
// acknowledged by OperationsLogged.
type Operation struct {
	ID     string    `json:"id"`
	Op     string    `json:"op"`             // write, remove, move, untrash, import
	Path   Path      `json:"path"`           // where it is now, or was before it was removed
	From   Path      `json:"from,omitempty"` // where it was moved from
	At     int64     `json:"at"`             // Unix milliseconds
	Size   int64     `json:"size,omitempty"`
	SHA256 string    `json:"sha256,omitempty"`
	Actor  string    `json:"role,omitempty"`
	User   string    `json:"user,omitempty"`
	Import *Imported `json:"import,omitempty"`
	Named  bool      `json:"named,omitempty"` // its event says how it is undone
}

// UndoRequest identifies an operation that is to be undone, by its event: its Op and Path,
// the ID of its entry in the trash, and From for a move. Op "back" makes an entry take the
// place of whatever is at its former path.
type UndoRequest struct {
	Op     string `json:"op"`
	ID     string `json:"id,omitempty"`
	Path   Path   `json:"path"`
	From   Path   `json:"from,omitempty"`
	DryRun bool   `json:"dry_run,omitempty"`
	Actor  string `json:"role,omitempty"`
	User   string `json:"user,omitempty"`
}

// UndoReply is what undoing an operation changes and, unless it was a dry run, the
// operation that did it.
type UndoReply struct {
	Changes   []Change  `json:"changes"`
	Operation Operation `json:"deed,omitzero"`
}

// MoveRequest names two paths, and who moves.
type MoveRequest struct {
	From  Path   `json:"from"`
	To    Path   `json:"to"`
	Actor string `json:"role,omitempty"`
	User  string `json:"user,omitempty"`
}

// UntrashRequest names an entry of the trash, and who puts it back.
type UntrashRequest struct {
	ID    string `json:"id"`
	To    Path   `json:"to,omitempty"` // another place than where it was
	Actor string `json:"role,omitempty"`
	User  string `json:"user,omitempty"`
}

// ImportRequest names where an imported directory goes, such as
// workspace/project. The name must be free. The rest is for its event: where it
// came from, in the host's words, and whose hand it was.
type ImportRequest struct {
	Path   Path   `json:"path"`
	Origin string `json:"origin,omitempty"`
	Remote string `json:"remote,omitempty"`
	Actor  string `json:"role,omitempty"`
	User   string `json:"user,omitempty"`
}

// Imported is the result of an import. Commit is the HEAD of the repository in the
// directory, if it is one.
type Imported struct {
	Path    Path   `json:"path"`
	Origin  string `json:"origin,omitempty"`
	Remote  string `json:"remote,omitempty"`
	Files   int    `json:"files"`
	Bytes   int64  `json:"bytes"`
	Skipped int    `json:"skipped,omitempty"` // devices, sockets and the like
	Commit  string `json:"commit,omitempty"`
	LeftOut        // the files that were skipped
}

// Trashed is something that was removed or overwritten through Files.
type Trashed struct {
	ID   string `json:"id"`
	Path Path   `json:"path"` // where it was
	Time int64  `json:"time"` // Unix seconds
}

// RemoveRequest names a path, and who removes it. If, when set, is what must be there, as
// in a WriteRequest.
type RemoveRequest struct {
	Path  Path   `json:"path"`
	If    string `json:"if,omitempty"`
	Actor string `json:"role,omitempty"`
	User  string `json:"user,omitempty"`
}

// Removed is the trash entry of what was removed, At in Unix milliseconds.
type Removed struct {
	Trashed
	At    int64 `json:"at"`
	Named bool  `json:"named,omitempty"`
}
