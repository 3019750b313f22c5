package wire

// These bound what a HunksReply lists.
const (
	MaxHunkFiles = 500       // files
	MaxHunkDiffs = 300       // of these, those whose hunks are listed
	MaxHunkText  = 400 << 10 // bytes of all hunks' text, as JSON has it: an answer on the bus holds 700 KiB
	MaxFileHunks = 500       // hunks of one file that are listed
	MaxHunkLine  = 4 << 10   // bytes of one line that is shown
	MaxChoices   = 2000      // of one ChooseRequest
	MaxHunks     = 2000      // that all of its choices name
)

// HunksRequest asks what Tree changes of Base, each a commit or a tree.
type HunksRequest struct {
	Base string `json:"base"`
	Tree string `json:"tree"`
}

// HunksReply is what is changed, sorted by path, and how many files are not listed.
type HunksReply struct {
	Files []HunkFile `json:"files"`
	More  int        `json:"more,omitempty"`
}

// HunkFile is a file that was changed. One without hunks can only be chosen whole.
type HunkFile struct {
	Path Path   `json:"path"`
	Op   string `json:"op"` // added, modified, deleted, mode
	// Plain says why there are no hunks: binary, large, link, folder, repository (Path is its .git, with
	// all that changed beneath), mode, or cut, where the reply would have become too long.
	Plain string `json:"plain,omitempty"`
	Hunks []Hunk `json:"hunks,omitempty"`
}

// Hunk is a place at which a file was changed. Text has its lines as a unified diff, each behind
// a blank, + or -; invalid UTF-8 is replaced and a long line is cut.
type Hunk struct {
	ID       string `json:"id"`
	Old      int    `json:"old"` // the first line in the base's file, from 1; with OldLines 0 the one that it comes behind
	OldLines int    `json:"old_lines"`
	New      int    `json:"new"` // the same in the changed file
	NewLines int    `json:"new_lines"`
	Text     string `json:"text"`
}

// Choice is a change that is taken: all that is changed at a path and beneath it, or of a file
// that is modified only these hunks.
type Choice struct {
	Path  Path     `json:"path"`
	Hunks []string `json:"hunks,omitempty"`
}

// ChooseRequest asks for a commit on Base that has of what Tree changes only what is chosen. ID
// names the ref that keeps it, which is another one than that of the tree.
type ChooseRequest struct {
	ID   string   `json:"id"`
	Base string   `json:"base"`
	Tree string   `json:"tree"`
	Only []Choice `json:"only"`
	Note Note     `json:"note"`
}
