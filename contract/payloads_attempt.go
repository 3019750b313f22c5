package contract

import "time"

// AttemptState is where an attempt at a task stands. What an attempt may do
// next is decided by it alone, while it goes on and after a crash.
type AttemptState string

// Where an attempt stands. task.started moves it to working, repair.requested to repairing,
// review.requested to reviewing, review.answered to reviewed and task.finished to ended;
// attempt.moved to all others.
const (
	AttemptBegun      AttemptState = "begun"       // its number and base are taken, its tree may be made
	AttemptWorking    AttemptState = "working"     // its loop works in boxes
	AttemptFinished   AttemptState = "finished"    // the loop has reported and its boxes are gone
	AttemptMerged     AttemptState = "merged"      // what it left is merged with the live tree, nothing is applied
	AttemptVerifying  AttemptState = "verifying"   // the merge is being checked
	AttemptVerified   AttemptState = "verified"    // the checks have an outcome, whichever
	AttemptRepairing  AttemptState = "repairing"   // the checks failed or a person wants it otherwise, and its loop is asked again, with its tree as it stands
	AttemptReviewing  AttemptState = "reviewing"   // the checks passed, and a person is to look at it before it is published
	AttemptReviewed   AttemptState = "reviewed"    // the person has decided
	AttemptPublishing AttemptState = "publishing"  // the merge may be applied to the live tree
	AttemptTakingBack AttemptState = "taking_back" // what it published live is being inverted; its result is decided
	AttemptLeft       AttemptState = "left"        // what it published live could not be inverted: it stays, and the user was told
	AttemptEnded      AttemptState = "ended"       // it has its result
)

// MaxScope bounds the paths that a verification says it depends on.
const MaxScope = 1000

// AttemptMerge is what publishing an attempt's work would make of the live tree.
type AttemptMerge struct {
	Commit string `json:"commit" v:"required,commit"`
	Tree   string `json:"tree" v:"required,commit"`
}

// AttemptMoved is one transition of an attempt, with what is needed to continue from there.
// It is only appended if the attempt's newest event is still the one that it was decided
// on, so that each transition happens once.
type AttemptMoved struct {
	Attempt int          `json:"attempt" v:"min=1,max=1000"`
	State   AttemptState `json:"state" v:"required"`
	Base    string       `json:"base,omitempty" v:"commit"` // begun: commit that its work is compared, merged and checked against
	From    string       `json:"from,omitempty" v:"commit"` // begun: kept tree that its own is made from; empty: Base
	// Result is the attempt's result so far: finished has the loop's report and what the
	// host observed, merged adds what changed, taking_back and left have what it will end
	// with.
	Result       *AssociateResult `json:"result,omitempty"`
	Merge        *AttemptMerge    `json:"merge,omitempty"`                             // merged; absent when nothing changed
	Try          int              `json:"try,omitempty" v:"min=0,max=1000"`            // merged: which merge of the attempt it is, from 1
	Scope        []string         `json:"scope,omitempty" v:"items=1000;raw,max=4096"` // verified: paths it depends on; empty: all
	Verification *Verification    `json:"verification,omitempty"`                      // verified
	Again        bool             `json:"again,omitempty"`                             // taking_back: another attempt is made after this one
	Keep         bool             `json:"keep,omitempty"`                              // taking_back: its tree is kept to look at
	Reason       string           `json:"reason,omitempty" v:"max=8192"`               // left: why it could not be taken back
}

// Validate implements Payload.
func (p AttemptMoved) Validate() error { return check(p) }

// RepairRequested sends an attempt whose checks failed, or of which a person wants something
// changed, back to its loop, which is asked again behind the turns that it had. It is a transition like AttemptMoved.
type RepairRequested struct {
	Attempt int    `json:"attempt" v:"min=1,max=1000"`
	Repair  int    `json:"repair" v:"min=0,max=100"`            // which repair of what its checks found, from 1; with Review, how many there were
	Failed  string `json:"failed" v:"required,raw,max=49152"`   // what the loop is told: the checks that failed, with their output, or what the person says
	Review  int    `json:"review,omitempty" v:"min=0,max=1000"` // the review whose comments it is told; 0: its checks failed
}

// Validate implements Payload.
func (p RepairRequested) Validate() error { return check(p) }

// MaxOutdated bounds the files of one Outdated.
const MaxOutdated = 200

type (
	// Outdated says that others changed live files that the loop of an attempt works with, of which it is told before its next request.
	Outdated struct {
		Attempt int            `json:"attempt" v:"min=1,max=1000"`
		Files   []OutdatedPath `json:"files" v:"nonempty,items=200"`
		Last    bool           `json:"last,omitempty"` // the attempt is told no more of them: there were too many
	}
	// OutdatedPath is the newest change of a live file when it was noticed. By is empty for what writes to the tree itself, such as a
	// terminal; Seq and Time are of the event that says so: file.written, file.removed, document.revised or checkpoint.created.
	OutdatedPath struct {
		Path    string    `json:"path" v:"required,path"`
		By      ActorKind `json:"by,omitempty"`
		Removed bool      `json:"removed,omitempty"`
		Seq     uint64    `json:"seq" v:"min=1"`
		Time    time.Time `json:"time"`
	}
)

// Validate implements Payload.
func (p Outdated) Validate() error { return check(p) }

func init() {
	register[Outdated](TypeInfo{Type: "task.outdated", Doc: "Live files that a task has read or written were changed by somebody else, and its loop is told.", By: host, Needs: CanRecord})
	register[RepairRequested](TypeInfo{Type: "repair.requested", Doc: "The checks of an attempt failed, or a person commented on its work, and its loop is asked again.", By: host, Needs: CanRecord, Projected: true})
	register[AttemptMoved](TypeInfo{Type: "attempt.moved", Doc: "An attempt at a task went on to another state.", By: host, Needs: CanRecord, Projected: true})
}
