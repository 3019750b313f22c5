package contract

import (
	"path"
	"strings"
)

// Version of the task contract. A message of another version is refused.
const Version = 1

// MaxTask bounds an encoded DirectorTask or AssociateResult, in bytes.
const MaxTask = 1 << 20

// TaskKind says how a task is executed.
type TaskKind string

// The kinds of task.
const (
	KindExec    TaskKind = "exec"    // deterministic steps, no model
	KindAgent   TaskKind = "agent"   // a model with tools
	KindInspect TaskKind = "inspect" // a model with read-only tools on a read-only tree
	KindGit     TaskKind = "git"     // git steps on the workspace's own history
	// KindResearch is a model that reads the workspace and the web, changes nothing, and cites what it found.
	KindResearch TaskKind = "research"
	// KindWrite is a model that writes one document, whose citations the host checks.
	KindWrite TaskKind = "write"
)

// Thinks reports whether a model with tools does tasks of the kind.
func (k TaskKind) Thinks() bool {
	return k == KindAgent || k == KindInspect || k == KindResearch || k == KindWrite
}

// Resumes reports whether the loop of an attempt goes on where it was, in other boxes and on the same tree, when its
// boxes end and when its work fails the checks. The attempts of other kinds are made anew.
func (k TaskKind) Resumes() bool { return k == KindAgent || k == KindWrite }

// OnlyReads reports whether nothing that a task of the kind leaves in its tree is published.
func (k TaskKind) OnlyReads() bool { return k == KindInspect || k == KindResearch }

// DirectorTask is what the Director asks of the Associate. Unknown fields are
// refused. Run and task ids derive from the event that caused them.
type DirectorTask struct {
	Version    int        `json:"version" v:"min=1,max=1"`
	ID         string     `json:"id" v:"required,id"`
	Run        string     `json:"run" v:"required,id"`
	Attempt    int        `json:"attempt" v:"min=1,max=1000"` // from 1
	Kind       TaskKind   `json:"kind" v:"required"`
	Goal       string     `json:"goal" v:"required,max=32768"`
	Acceptance []string   `json:"acceptance,omitempty" v:"items=200;required,max=32768"`
	Base       string     `json:"base,omitempty" v:"commit"` // checkpoint or kept tree to start from; empty means the newest checkpoint
	Steps      []Step     `json:"steps,omitempty" v:"items=200"`
	Inputs     []Input    `json:"inputs,omitempty" v:"items=200"`
	Tools      []string   `json:"tools,omitempty" v:"items=200;required,max=64"` // empty allows none
	Program    string     `json:"program,omitempty" v:"line,max=32"`             // the agent program, by its name in the owner's configuration, that does the task in place of our own loop; kind agent only
	Document   string     `json:"document,omitempty" v:"path"`                   // what a task of kind write writes: artifacts/….md
	Egress     EgressSpec `json:"egress"`
	Verify     VerifySpec `json:"verify"`
	Budget     Budget     `json:"budget"`
	OnFailure  OnFailure  `json:"on_failure" v:"required"`
	Want       Want       `json:"want"`
}

// Step is one deterministic step; exactly one field is set.
type Step struct {
	Run   *RunStep   `json:"run,omitempty"`
	Write *WriteStep `json:"write,omitempty"`
	Patch *PatchStep `json:"patch,omitempty"`
	Git   *GitStep   `json:"git,omitempty"`
}

// RunStep runs a command in the task box.
type RunStep struct {
	Argv []string `json:"argv" v:"nonempty,items=256;max=65536"`
	Cwd  string   `json:"cwd,omitempty" v:"path"` // relative to the workspace's root
}

// WriteStep writes a whole file.
type WriteStep struct {
	Path       string `json:"path" v:"required,path"`
	Content    string `json:"content" v:"raw,max=524288"`
	Executable bool   `json:"executable,omitempty"`
}

// PatchStep applies a unified diff.
type PatchStep struct {
	Diff string `json:"diff" v:"required,max=524288"`
}

// GitStep is one operation on the workspace's history, done by the keeper.
type GitStep struct {
	Op      GitOp  `json:"op" v:"required"`
	Message string `json:"message,omitempty" v:"max=4096"` // checkpoint
	Ref     string `json:"ref,omitempty" v:"commit"`       // restore, diff: a commit
	Path    string `json:"path,omitempty" v:"path"`        // restore, diff: only this path
}

// GitOp names an operation on the workspace's history.
type GitOp string

// Operations of a git step.
const (
	GitCheckpoint GitOp = "checkpoint"
	GitRestore    GitOp = "restore"
	GitDiff       GitOp = "diff"
	GitLog        GitOp = "log"
	GitStatus     GitOp = "status"
)

// Input names something a task may read; exactly one field is set.
type Input struct {
	Document string  `json:"document,omitempty" v:"id"`
	File     string  `json:"file,omitempty" v:"path"`
	Blob     BlobRef `json:"blob,omitempty"`
}

// EgressProfile names a network policy.
type EgressProfile string

// The network policies a task can ask for.
const (
	EgressNone    EgressProfile = "none"
	EgressDefault EgressProfile = "default" // recorded git remotes and the configured package registries
	EgressCustom  EgressProfile = "custom"  // what Allow names and nothing else
)

// EgressSpec is the network access that a task asks for. The host decides what it gets:
// what exceeds the computer's grant waits for a person.
type EgressSpec struct {
	Profile EgressProfile `json:"profile" v:"required"`
	Allow   []string      `json:"allow,omitempty" v:"items=200;required,max=300"` // host:port or *.suffix:port; custom only
	Reason  string        `json:"reason,omitempty" v:"max=1000"`                  // shown to that person as a claim; custom only
}

// VerifyProfile says how much checking a task's outcome needs.
type VerifyProfile string

// The verification profiles.
const (
	VerifyNone     VerifyProfile = "none"
	VerifySmoke    VerifyProfile = "smoke"    // the project's fastest check
	VerifyStandard VerifyProfile = "standard" // its whole test command
	VerifyStrict   VerifyProfile = "strict"   // its tests, linter and build
)

// VerifySpec is how a task's outcome is checked; Commands are run besides what
// the profile finds.
type VerifySpec struct {
	Profile  VerifyProfile `json:"profile" v:"required"`
	Commands [][]string    `json:"commands,omitempty" v:"items=20;nonempty,items=256;max=65536"`
}

// Budget bounds a task or run. Zero means "no own limit", within what is left of the
// run's; for wall_s of a task of fixed steps and of a run it means the default.
type Budget struct {
	WallS     int     `json:"wall_s" v:"min=0,max=86400"`
	ToolCalls int     `json:"tool_calls" v:"min=0,max=1000000000"`
	Tokens    int64   `json:"tokens" v:"min=0,max=1000000000000"`
	CostUSD   float64 `json:"cost_usd" v:"min=0,max=1000000000"`
}

// DefaultWallS is the wall-clock budget in seconds of a task of fixed steps when none is given.
const DefaultWallS = 300

// OnFailure says what happens to a failed task's tree. Since every tree that was worked on
// is kept, both mean the same.
type OnFailure string

// What becomes of a failed task's tree.
const (
	Rollback OnFailure = "rollback" // take back what was shown live, and keep the tree
	Keep     OnFailure = "keep"     // as rollback; versions before kept trees dropped the tree without it
)

// Want says what the result should carry.
type Want struct {
	Diff      bool     `json:"diff"`
	Logs      bool     `json:"logs"`
	Artifacts []string `json:"artifacts,omitempty" v:"items=200;required,path"` // paths to keep as blobs
}

// DecodeTask decodes and validates a DirectorTask.
func DecodeTask(b []byte) (DirectorTask, error) {
	var t DirectorTask
	if err := DecodeStrict(b, MaxTask, &t); err != nil {
		return DirectorTask{}, within("task", err)
	}
	return t, t.Validate()
}

// WithDefaults fills what a sender may leave out.
func (t DirectorTask) WithDefaults() DirectorTask {
	if t.Version == 0 {
		t.Version = Version
	}
	if t.Attempt == 0 {
		t.Attempt = 1
	}
	if t.Egress.Profile == "" {
		t.Egress.Profile = EgressNone
	}
	if t.Verify.Profile == "" {
		t.Verify.Profile = VerifySmoke
	}
	if t.Budget.WallS == 0 && (t.Kind == KindExec || t.Kind == KindGit) {
		t.Budget.WallS = DefaultWallS
	}
	if t.OnFailure == "" {
		t.OnFailure = Rollback
	}
	return t
}

// Validate checks every field of a task.
func (t DirectorTask) Validate() error { return check(t) }

// Validate checks that exactly one kind of input is named.
func (in Input) Validate() error { return check(in) }

// Validate checks the profile and the form of each allowed host.
func (e EgressSpec) Validate() error { return check(e) }

// Validate checks the profile and commands.
func (v VerifySpec) Validate() error { return check(v) }

// Validate refuses negative and absurd bounds.
func (b Budget) Validate() error { return check(b) }

// ValidPath checks a slash-separated path relative to the workspace's root:
// clean, not absolute, not outside, nothing under .git.
func ValidPath(field, p string) error {
	if err := text(field, p, 4096, true); err != nil {
		return err
	}
	switch {
	case path.IsAbs(p):
		return fieldErr(field, "is absolute; paths are relative to the workspace")
	case path.Clean(p) != p:
		return fieldErr(field, "is %q; write it as %q", Shorten(p, 80), Shorten(path.Clean(p), 80))
	case p == ".." || strings.HasPrefix(p, "../"):
		return fieldErr(field, "leaves the workspace")
	case p == ".git" || strings.HasPrefix(p, ".git/"):
		return fieldErr(field, "is inside .git, which only the keeper writes")
	}
	return nil
}

func validCommit(field, c string, optional bool) error {
	if c == "" && optional {
		return nil
	}
	if len(c) != 40 && len(c) != 64 {
		return fieldErr(field, "is %q; it must be a whole commit id", Shorten(c, 80))
	}
	for i := range len(c) {
		if !strings.ContainsRune("0123456789abcdef", rune(c[i])) {
			return fieldErr(field, "is %q; it must be a whole commit id", Shorten(c, 80))
		}
	}
	return nil
}
