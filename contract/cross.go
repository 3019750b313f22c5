package contract

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"sort"
	"strings"
)

// The closed sets of the string types.
var _ = []bool{
	enum(ActorKinds...),
	enum(BoxKinds...),
	enum(RunQueued, RunPlanning, RunWorking, RunWaiting, RunDone, RunFailed, RunCancelled),
	enum(PlanOpen, PlanActive, PlanDone, PlanFailed, PlanDropped),
	enum(StoodSuspended, StoodStopped, StoodBox),
	enum(WaitAnswered, WaitGaveUp, WaitLeft, WaitSwitched),
	enum(CommandPause, CommandResume, CommandCancel),
	enum(RoutePlan, RouteDirect),
	enum(CheckpointInitial, CheckpointAuto, CheckpointManual, CheckpointBefore, CheckpointTask, CheckpointPush, CheckpointAfter, CheckpointSafety, CheckpointRestore),
	enum(FilePut, FileMoved, FileBack),
	enum(ProposalAccepted, ProposalDismissed, ProposalSuperseded),
	enum(WindowNormal, WindowMinimised, WindowMaximised),
	enum(ResultOK, ResultFailed, ResultNeedsInput, ResultCancelled, ResultRefused),
	enum(RequestBlocked, RequestApproval, RequestConflict, RequestReprioritise),
	enum(ChangeAdded, ChangeModified, ChangeDeleted, ChangeMode),
	enum(VerificationPass, VerificationFail, VerificationUnknown),
	enum(LockOfBase, LockOfChange),
	enum(KindExec, KindAgent, KindInspect, KindResearch, KindWrite, KindGit),
	enum(SupportYes, SupportNo, SupportUnknown),
	enum(GitCheckpoint, GitRestore, GitDiff, GitLog, GitStatus),
	enum(EgressNone, EgressDefault, EgressCustom),
	enum(ApprovalEgress, ApprovalFetch, ApprovalRequest),
	enum(ApprovalOnce, ApprovalRun, ApprovalDeny),
	enum(ReviewPublish, ReviewRevise, ReviewDiscard),
	enum(EffectMCP, EffectRequest),
	enum(EffectDone, EffectFailed, EffectUnknown),
	enum(FoundDone, FoundNotDone),
	enum(VerifyNone, VerifySmoke, VerifyStandard, VerifyStrict),
	enum(Rollback, Keep),
	enum(AttemptBegun, AttemptWorking, AttemptFinished, AttemptMerged, AttemptVerifying, AttemptVerified, AttemptReviewing, AttemptReviewed, AttemptRepairing, AttemptPublishing, AttemptTakingBack, AttemptLeft, AttemptEnded),
	enum(MessageUser, MessageAssistant),
	enum(ProgramSaid, ProgramCall, ProgramPlan),
	enum(CallBegun, CallDone, CallFailed),
	enum(StopEnd, StopToolUse, StopLength, StopRefusal, StopTruncate),
	enum(EffortNone, EffortLow, EffortMedium, EffortHigh),
}

// What follows are the rules that concern several fields at once.

func (p RunReported) crossCheck() error {
	if !p.Status.Ended() {
		return fieldErr("status", "is %q; a report ends a run: done, failed or cancelled", string(p.Status))
	}
	return nil
}

func (p AttemptMoved) crossCheck() error {
	switch p.State {
	case AttemptWorking, AttemptRepairing, AttemptReviewing, AttemptReviewed, AttemptEnded:
		return fieldErr("state", "is %q; task.started, repair.requested, review.requested, review.answered and task.finished say so", string(p.State))
	case AttemptFinished, AttemptMerged, AttemptTakingBack, AttemptLeft:
		if p.Result == nil {
			return fieldErr("result", "is required with state %s", string(p.State))
		}
	case AttemptVerified:
		if p.Verification == nil {
			return fieldErr("verification", "is required with state verified")
		}
	}
	return nil
}

func (p RepairRequested) crossCheck() error {
	if p.Repair == 0 && p.Review == 0 {
		return fieldErr("repair", "is 0, which only a review's comments leave it at")
	}
	return nil
}

func (p DocumentRevised) crossCheck() error {
	if p.Base != p.Revision-1 {
		return fieldErr("revision", "is %d on base %d; it must be base + 1", p.Revision, p.Base)
	}
	if !strings.HasPrefix(p.Path, "artifacts/") || !strings.HasSuffix(p.Path, ".md") {
		return fieldErr("path", "is %q; a document is mirrored to artifacts/….md", Shorten(p.Path, 80))
	}
	if p.SHA256 != NewBlobRef(sha256.Sum256([]byte(p.Body))) {
		return fieldErr("sha256", "is not that of the body")
	}
	return nil
}

func (p DocumentProposed) crossCheck() error {
	if p.SHA256 != NewBlobRef(sha256.Sum256([]byte(p.Body))) {
		return fieldErr("sha256", "is not that of the body")
	}
	return nil
}

func (p ProposalResolved) crossCheck() error {
	switch {
	case p.Resolution == ProposalAccepted && p.Revision == 0:
		return fieldErr("revision", "is required for an accepted proposal")
	case p.Resolution != ProposalAccepted && p.Revision != 0:
		return fieldErr("revision", "is only for an accepted proposal")
	case p.Resolution == ProposalSuperseded && p.Successor == "":
		return fieldErr("successor", "is required for a superseded proposal")
	case p.Resolution != ProposalSuperseded && p.Successor != "":
		return fieldErr("successor", "is only for a superseded proposal")
	case p.Successor == p.Proposal:
		return fieldErr("successor", "is the proposal itself")
	}
	return nil
}

func (p WindowOpened) crossCheck() error {
	keys := make([]string, 0, len(p.Props))
	for k := range p.Props {
		keys = append(keys, k)
	}
	sort.Strings(keys)
	for _, k := range keys {
		if err := first(text("props", k, 100, true), text("props."+k, p.Props[k], 4096, false)); err != nil {
			return err
		}
	}
	return nil
}

func (p CommandStarted) crossCheck() error { return program("argv", p.Argv) }
func (s RunStep) crossCheck() error        { return program("argv", s.Argv) }

// program checks that a command names what to run.
func program(field string, argv []string) error {
	if len(argv) == 0 || argv[0] == "" {
		return fieldErr(field, "names no program")
	}
	return nil
}

func (v VerifySpec) crossCheck() error {
	for i, argv := range v.Commands {
		if err := program(fmt.Sprintf("commands[%d]", i), argv); err != nil {
			return err
		}
	}
	return nil
}

func (t DirectorTask) crossCheck() error {
	switch {
	case (t.Kind == KindExec || t.Kind == KindGit) && len(t.Steps) == 0:
		return fieldErr("steps", "is empty; a task of kind %s needs steps", t.Kind)
	case t.Kind.Thinks() && len(t.Steps) > 0:
		return fieldErr("steps", "are not for kind %s", t.Kind)
	case t.Program != "" && t.Kind != KindAgent:
		return fieldErr("program", "is only for kind agent")
	case (t.Kind == KindWrite) != (t.Document != ""):
		return fieldErr("document", "is what a task of kind write writes, and only such a task: a path such as artifacts/notes.md")
	case t.Document != "" && (!strings.HasPrefix(t.Document, "artifacts/") || !strings.HasSuffix(t.Document, ".md")):
		return fieldErr("document", "is %q; documents are artifacts/….md", t.Document)
	}
	for i, s := range t.Steps {
		if t.Kind == KindGit && s.Git == nil {
			return fieldErr(fmt.Sprintf("steps[%d].git", i), "is the only step a task of kind git may have")
		}
		if t.Kind == KindExec && s.Git != nil {
			return fieldErr(fmt.Sprintf("steps[%d].git", i), "is only for tasks of kind git")
		}
	}
	return nil
}

func (s Step) crossCheck() error {
	return exactlyOne("run, write, patch, git", s.Run != nil, s.Write != nil, s.Patch != nil, s.Git != nil)
}

func (g GitStep) crossCheck() error {
	if g.Op == GitRestore && g.Ref == "" {
		return fieldErr("ref", "is required to restore")
	}
	return nil
}

func (in Input) crossCheck() error {
	return exactlyOne("document, file, blob", in.Document != "", in.File != "", in.Blob != "")
}

func (e EgressSpec) crossCheck() error {
	if len(e.Allow) > 0 && e.Profile != EgressCustom {
		return fieldErr("allow", "is only for profile custom")
	}
	if e.Reason != "" && e.Profile != EgressCustom {
		return fieldErr("reason", "is only for profile custom")
	}
	return nil
}

func (r AssociateResult) crossCheck() error {
	if r.Status == ResultOK && r.Verification.Status == VerificationFail {
		return fieldErr("status", "is ok but the verification failed")
	}
	if r.Status == ResultNeedsInput && len(r.Questions) == 0 {
		return fieldErr("questions", "is empty; needs_input must ask something")
	}
	return nil
}

func (m Message) crossCheck() error {
	for i, p := range m.Parts {
		if p.Call != nil && m.Role != MessageAssistant {
			return fieldErr(fmt.Sprintf("parts[%d].call", i), "is only for the assistant")
		}
		if p.Return != nil && m.Role != MessageUser {
			return fieldErr(fmt.Sprintf("parts[%d].return", i), "is only for the user")
		}
		if p.Reasoning != nil && m.Role != MessageAssistant {
			return fieldErr(fmt.Sprintf("parts[%d].reasoning", i), "is only for the assistant")
		}
		if p.Image != nil && m.Role != MessageUser {
			return fieldErr(fmt.Sprintf("parts[%d].image", i), "is only for the user")
		}
	}
	return nil
}

func (p Part) crossCheck() error {
	return exactlyOne("text, call, return, reasoning, image", p.Text != "", p.Call != nil, p.Return != nil, p.Reasoning != nil, p.Image != nil)
}

func (i Image) crossCheck() error {
	switch i.Media {
	case "image/png", "image/jpeg", "image/gif", "image/webp":
		return nil
	}
	return fieldErr("media", "is %q; allowed: image/png, image/jpeg, image/gif, image/webp", Shorten(i.Media, 40))
}

func (o Output) crossCheck() error {
	if b := bytes.TrimSpace(o.Schema); len(b) == 0 || b[0] != '{' {
		return fieldErr("schema", "is not a JSON object")
	}
	return nil
}

func (s ToolSpec) crossCheck() error {
	if b := bytes.TrimSpace(s.Schema); len(b) == 0 || b[0] != '{' {
		return fieldErr("schema", "is not a JSON object")
	}
	return nil
}

func (c TurnChunk) crossCheck() error {
	return exactlyOne("delta, turn, error", c.Delta != "", c.Turn != nil, c.Error != nil)
}

func (t Theme) crossCheck() error {
	if t.Scheme != "dark" && t.Scheme != "light" {
		return fieldErr("scheme", "is %q; allowed: dark, light", Shorten(t.Scheme, 40))
	}
	known := map[string]bool{}
	for _, name := range ThemeColors {
		known[name] = true
		if _, ok := t.Colors[name]; !ok {
			return fieldErr("colors."+name, "is required")
		}
	}
	names := make([]string, 0, len(t.Colors))
	for name := range t.Colors {
		names = append(names, name)
	}
	sort.Strings(names)
	for _, name := range names {
		if !known[name] {
			return fieldErr("colors."+Shorten(name, 40), "is not a known colour")
		}
		if c := t.Colors[name]; !colorPattern().MatchString(c) {
			return fieldErr("colors."+name, "is %q; write it as #rrggbb", Shorten(c, 40))
		}
	}
	return nil
}
