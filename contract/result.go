package contract

// ResultStatus is how a task ended.
type ResultStatus string

// How a task ended.
const (
	ResultOK         ResultStatus = "ok"
	ResultFailed     ResultStatus = "failed"
	ResultNeedsInput ResultStatus = "needs_input"
	ResultCancelled  ResultStatus = "cancelled"
	ResultRefused    ResultStatus = "refused"
)

// AssociateResult is what the Associate answers to a DirectorTask, exactly
// once per attempt. Long values are blob references.
type AssociateResult struct {
	Version       int          `json:"version" v:"min=1,max=1"`
	Task          string       `json:"task" v:"required,id"`
	Attempt       int          `json:"attempt" v:"min=1,max=1000"`
	Status        ResultStatus `json:"status" v:"required"`
	Summary       string       `json:"summary" v:"required,max=32768"`
	Base          string       `json:"base,omitempty" v:"commit"` // commit its work is compared, merged and checked against
	Head          string       `json:"head,omitempty" v:"commit"` // checkpoint that holds its work; empty when nothing was published
	Changes       []Change     `json:"changes,omitempty" v:"items=20000"`
	Diff          string       `json:"diff,omitempty" v:"raw,max=1048576"` // unified, or empty and DiffRef set
	DiffRef       BlobRef      `json:"diff_ref,omitempty"`
	Commands      []Command    `json:"commands,omitempty" v:"items=1000"`
	Verification  Verification `json:"verification"`
	Egress        EgressReport `json:"egress"`
	Artifacts     []Artifact   `json:"artifacts,omitempty" v:"items=1000"`
	Citations     []Citation   `json:"citations,omitempty" v:"items=1000"`
	Questions     []Question   `json:"questions,omitempty" v:"items=50"`
	Requests      []Request    `json:"requests,omitempty" v:"items=8"` // what it asks of whoever plans the run
	Usage         Usage        `json:"usage"`
	SuggestedNext string       `json:"suggested_next,omitempty" v:"max=32768"`
	Repairs       int          `json:"repairs,omitempty" v:"min=0,max=100"` // how often its loop was asked to repair what the checks found
	Kept          *KeptTree    `json:"kept,omitempty"`                      // what it wrote, if it was not published and differs from Base
	Reviewed      *Reviewed    `json:"reviewed,omitempty"`                  // what a person decided about it before it was published
	Overlaps      []Overlap    `json:"overlaps,omitempty" v:"items=100"`    // siblings that had changed the same paths when its work was merged
	// Effects are what its calls changed outside, or may have: those whose outcome is unknown first, then the newest.
	Effects []EffectOutside `json:"effects,omitempty" v:"items=50"`
}

// RequestType is what a worker asks of whoever plans its run.
type RequestType string

// What a worker asks.
const (
	RequestBlocked      RequestType = "blocked"      // it lacks something that its task was not given
	RequestApproval     RequestType = "approval"     // a person has to agree first
	RequestConflict     RequestType = "conflict"     // what it was told, found, or others did contradicts
	RequestReprioritise RequestType = "reprioritise" // something else should come first, or instead
)

// Request is one thing that a worker asks. Nothing follows from it by itself: whoever plans decides.
type Request struct {
	Type RequestType `json:"type" v:"required"`
	Text string      `json:"text" v:"required,max=4096"`
}

// Validate reports a *FieldError.
func (r Request) Validate() error { return check(r) }

// Overlap names a task of the same delegation that changed the same paths. Siblings are
// merged in the order in which they end, each with what the ones before it published.
type Overlap struct {
	Task  string   `json:"task" v:"required,id"`
	Paths []string `json:"paths" v:"nonempty,items=200;required,max=12288"`
	More  int      `json:"more,omitempty" v:"min=0"` // paths that are not listed
}

// KeptTree is the tree of an attempt that was not published. A later task can name Commit
// as its base to go on from it; that task's work is merged with Base as the common
// ancestor, and checked with the tests and tools of Base, as the attempt's would have been.
type KeptTree struct {
	Commit string `json:"commit" v:"required,commit"`
	Base   string `json:"base" v:"required,commit"` // the checkpoint that the work began from
	Paths  int    `json:"paths" v:"min=1"`          // how many differ from Base
}

// ChangeOp is what happened to a path.
type ChangeOp string

// What happened to a path.
const (
	ChangeAdded    ChangeOp = "added"
	ChangeModified ChangeOp = "modified"
	ChangeDeleted  ChangeOp = "deleted"
	ChangeMode     ChangeOp = "mode" // permission or type only
)

// Change is one path a task changed. Added and Removed count lines; both are
// -1 for binary content. PathBase64 is set when the path is not valid UTF-8;
// Path then shows it with replacement characters.
type Change struct {
	Path       string   `json:"path" v:"required,max=12288"`
	PathBase64 string   `json:"path_base64,omitempty" v:"max=8192"`
	Op         ChangeOp `json:"op" v:"required"`
	Added      int      `json:"added" v:"min=-1"`
	Removed    int      `json:"removed" v:"min=-1"`
}

// Command is one command that ran in a box. Stdout and Stderr hold the head
// and tail when Truncated.
type Command struct {
	Argv       []string `json:"argv,omitempty" v:"items=256;raw,max=65536"`
	ExitCode   int      `json:"exit_code" v:"min=-1,max=255"` // 128+n when killed by signal n, -1 when it did not start
	DurationMS int64    `json:"duration_ms" v:"min=0"`
	Stdout     string   `json:"stdout" v:"raw,max=1048576"`
	Stderr     string   `json:"stderr" v:"raw,max=1048576"`
	Truncated  bool     `json:"truncated"`
}

// VerificationStatus is what a check found.
type VerificationStatus string

// What a check found. Unknown is never shown as success.
const (
	VerificationPass    VerificationStatus = "pass"
	VerificationFail    VerificationStatus = "fail"
	VerificationUnknown VerificationStatus = "unknown"
)

// Verification is the outcome of checking a task's tree. Tree is the git tree that was
// checked. It is the published tree, or differs from it only outside of the projects that
// were checked; otherwise Status is unknown. Tests is how many tests ran, with the base's
// tools and configuration of the checks; Said names what the task changed of those.
type Verification struct {
	Profile VerifyProfile      `json:"profile" v:"required"`
	Status  VerificationStatus `json:"status" v:"required"`
	Tree    string             `json:"tree,omitempty" v:"commit"`
	Checks  []Check            `json:"checks,omitempty" v:"items=100"`
	Tests   int                `json:"tests,omitempty" v:"min=0"`
	Said    []string           `json:"said,omitempty" v:"items=100;required,max=8192"`
	Reason  string             `json:"reason,omitempty" v:"max=8192"` // why it is unknown
	// NoCheck says that it is unknown for no other reason than that nothing checks what changed.
	NoCheck bool `json:"no_check,omitempty"`
	// Installed is what lock files name and had to be installed for the checks.
	Installed []Installation `json:"installed,omitempty" v:"items=100"`
}

// Installation is the installation, in a box of its own, of the packages that a lock file
// names and checks need. Of says whose lock file it is: the base's, or the change's. Hosts
// are where the packages came from, empty when they were kept from an earlier check.
// Problem says why they could not be installed.
type Installation struct {
	Tool     string   `json:"tool" v:"required,max=32"`
	Lock     string   `json:"lock" v:"required,path"`
	Of       LockOf   `json:"of" v:"required"`
	Key      string   `json:"key,omitempty" v:"max=64"` // names the lock's content and the tool
	Packages int      `json:"packages,omitempty" v:"min=0"`
	Bytes    int64    `json:"bytes,omitempty" v:"min=0"`
	Hosts    []string `json:"hosts,omitempty" v:"items=200;required,max=300"`
	Kept     bool     `json:"kept,omitempty"`
	Note     string   `json:"note,omitempty" v:"max=2048"` // what differs from what the packages ask for
	Problem  string   `json:"problem,omitempty" v:"max=4096"`
}

// LockOf says whose lock file was installed from.
type LockOf string

// Whose lock file was installed from.
const (
	LockOfBase   LockOf = "base"
	LockOfChange LockOf = "change"
)

// Check is one command of a verification, run in a verify box of its own. Runner names the
// program whose report says how many tests ran; for an "exit code" nobody says it.
type Check struct {
	Name    string             `json:"name" v:"required,max=1024"`
	Status  VerificationStatus `json:"status" v:"required"`
	Command Command            `json:"command"`
	Runner  string             `json:"runner,omitempty" v:"max=64"`
	Ran     int                `json:"ran,omitempty" v:"min=0"`
	Skipped int                `json:"skipped,omitempty" v:"min=0"`
}

// EgressReport lists host:port pairs a task reached or was refused.
type EgressReport struct {
	Allowed []string `json:"allowed,omitempty" v:"items=200;required,max=300"`
	Denied  []string `json:"denied,omitempty" v:"items=200;required,max=300"`
}

// Artifact is a file kept as a blob.
type Artifact struct {
	Path string  `json:"path" v:"required,path"`
	Ref  BlobRef `json:"ref" v:"required"`
	Size int64   `json:"size" v:"min=0"`
}

// Citation is a claim, and the words of a source that it rests on.
type Citation struct {
	Label   string  `json:"label" v:"required,max=32"` // what a document names it by: [^label]
	Source  string  `json:"source" v:"required,id"`
	Address string  `json:"address" v:"required,line,max=4096"` // of the source
	Title   string  `json:"title,omitempty" v:"line,max=800"`   // of the source
	Claim   string  `json:"claim" v:"required,line,max=2000"`
	Excerpt string  `json:"excerpt" v:"required,line,max=2000"` // word for word as in the source's text, but for white space
	Line    int     `json:"line" v:"min=1"`                     // of the source's text, where the excerpt begins
	Support Support `json:"support" v:"required"`
	Reason  string  `json:"reason,omitempty" v:"line,max=1000"` // why the model judged so, or why nothing is known
	Model   string  `json:"model,omitempty" v:"line,max=300"`   // which one judged
}

// Question is something only the user can decide. Default is what a missed
// deadline means.
type Question struct {
	ID       string   `json:"id" v:"required,max=128"`
	Text     string   `json:"text" v:"required,max=8192"`
	Choices  []string `json:"choices,omitempty" v:"items=200;required,max=1024"`
	Default  string   `json:"default,omitempty" v:"max=1024"`
	Deadline string   `json:"deadline,omitempty" v:"time"` // RFC 3339
}

// Usage is what something consumed.
type Usage struct {
	WallMS    int64   `json:"wall_ms" v:"min=0,max=1000000000000"`
	ToolCalls int     `json:"tool_calls" v:"min=0,max=1000000000"`
	TokensIn  int64   `json:"tokens_in" v:"min=0,max=1000000000000"`
	TokensOut int64   `json:"tokens_out" v:"min=0,max=1000000000000"`
	CostUSD   float64 `json:"cost_usd" v:"min=0,max=1000000000"`
	// TokensCached are those of TokensIn that the service had kept from an earlier request.
	TokensCached int64 `json:"tokens_cached,omitempty" v:"min=0,max=1000000000000"`
	// TokensRepeated are those of TokensIn with which the same loop's request before began, too, so that a service can keep them: that
	// share of the request's bytes.
	TokensRepeated int64 `json:"tokens_repeated,omitempty" v:"min=0,max=1000000000000"`
}

// Add returns the sum of two usages.
func (u Usage) Add(v Usage) Usage {
	return Usage{u.WallMS + v.WallMS, u.ToolCalls + v.ToolCalls, u.TokensIn + v.TokensIn, u.TokensOut + v.TokensOut, u.CostUSD + v.CostUSD, u.TokensCached + v.TokensCached, u.TokensRepeated + v.TokensRepeated}
}

// Validate refuses negative usage.
func (u Usage) Validate() error { return check(u) }

// DecodeResult decodes and validates an AssociateResult.
func DecodeResult(b []byte) (AssociateResult, error) {
	var r AssociateResult
	if err := DecodeStrict(b, MaxTask, &r); err != nil {
		return AssociateResult{}, within("result", err)
	}
	return r, r.Validate()
}

// Validate checks every field of a result; a result that claims success over a
// failed verification is refused.
func (r AssociateResult) Validate() error { return check(r) }
