package document

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"sync"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/state"
)

// Log is where revisions go; *ledger.Log is one.
type Log interface {
	Append(ctx context.Context, drafts ...contract.Draft) ([]contract.Event, error)
	Last() uint64
	CID() contract.CID
}

// State is where documents are read from; *state.Store is one.
type State interface {
	CaughtUp(ctx context.Context, log state.LogEnd) error
	Document(ctx context.Context, id string) (state.Revision, error)
	DocumentAt(ctx context.Context, path string) (string, error)
	Revision(ctx context.Context, document string, revision int) (state.Revision, error)
	Revisions(ctx context.Context, document string, after, limit int) ([]state.Revision, error)
	RevisionOf(ctx context.Context, document string, text contract.BlobRef) (int, error)
	RevisionBy(ctx context.Context, document, origin, event string) (int, error)
	Proposals(ctx context.Context, f state.ProposalFilter) ([]state.Proposal, error)
	Proposal(ctx context.Context, document, id string) (state.Proposal, error)
	Event(ctx context.Context, source, id string) (state.Event, error)
}

// MaxBody bounds a document, in bytes.
const MaxBody = 4 << 20

// maxTries bounds how often a change is rebased before its author is told that the document
// changes too often.
const maxTries = 20

// Documents are the living documents of one computer.
type Documents struct {
	log   Log
	state State
	paths sync.Mutex // held while a new document's path is chosen and recorded
	// proposing is held while proposals are made or resolved. Only a Documents does that:
	// the log has one owner, and the owner has one Documents.
	proposing sync.Mutex
	turns     turns // of those who write one document
}

// New returns the documents whose revisions are in log and, projected, in st.
func New(log Log, st State) *Documents { return &Documents{log: log, state: st} }

// Author says who makes a revision, and what for.
type Author struct {
	Name  string // as shown: a user's name, "director" or a model's name
	By    contract.Actor
	Run   string
	Task  string
	Cause string // id of the event that caused it
}

// ConflictError says that a change can't be made without losing what someone
// else wrote since its base. It is in the chain of a fault.Conflict. Current is
// the newest revision; the author may look at it and try again on that base.
type ConflictError struct {
	Current   state.Revision
	Conflicts []Conflict
}

func (e *ConflictError) Error() string {
	return fmt.Sprintf("the document is at revision %d, by %s, which changed the same text (line %d)", e.Current.Revision, e.Current.Author, e.Conflicts[0].Line)
}

// Create makes a document with its first revision. Id is a UUID; the path is
// artifacts/….md and no other document's. A document that exists with the
// same title, path and body, made by a repeated call, is returned as it is;
// any other one is a fault.Conflict.
func (d *Documents) Create(ctx context.Context, id, title, at, body string, by Author) (state.Revision, error) {
	const op = "document.Create"
	d.paths.Lock()
	defer d.paths.Unlock()
	if err := d.state.CaughtUp(ctx, d.log); err != nil {
		return state.Revision{}, fault.Wrap(op, err)
	}
	switch old, err := d.state.Revision(ctx, id, 1); {
	case err == nil && old.Title == title && old.Path == at && old.Body == body:
		return d.Get(ctx, id)
	case err == nil:
		return state.Revision{}, fault.New(op, fault.Conflict, "", errors.New("the document exists already"))
	case !fault.Is(err, fault.NotFound):
		return state.Revision{}, fault.Wrap(op, err)
	}
	switch other, err := d.state.DocumentAt(ctx, at); {
	case err == nil:
		return state.Revision{}, fault.New(op, fault.Conflict, "Choose another path.", fmt.Errorf("document %s is mirrored to %s", other, at))
	case !fault.Is(err, fault.NotFound):
		return state.Revision{}, fault.Wrap(op, err)
	}
	rev, err := d.append(ctx, 0, contract.DocumentRevised{Document: id, Revision: 1, Title: title, Path: at, Body: body}, by)
	return rev, fault.Wrap(op, err)
}

// Revise makes body, which was written on revision base, the next revision.
// When the document has moved since, the change is merged with what was
// written meanwhile. Where both changed the same lines, a user's change wins
// over those of agents; any other change is refused with a ConflictError in a
// fault.Conflict. A change that changes nothing returns the newest revision.
func (d *Documents) Revise(ctx context.Context, id string, base int, body string, by Author) (state.Revision, error) {
	const op = "document.Revise"
	if base < 1 {
		return state.Revision{}, fault.New(op, fault.Invalid, "", &contract.FieldError{Field: "base", Reason: "is not a revision's number"})
	}
	end, err := d.turns.take(ctx, id)
	if err != nil {
		return state.Revision{}, fault.Wrap(op, err)
	}
	defer end()
	for range maxTries {
		head, err := d.Get(ctx, id)
		if err != nil || base > head.Revision {
			// The projection may be behind what the caller has seen.
			if head, err = d.fresh(ctx, id); err != nil {
				return state.Revision{}, fault.Wrap(op, err)
			}
		}
		if base > head.Revision {
			return state.Revision{}, fault.New(op, fault.Invalid, "", &contract.FieldError{Field: "base", Reason: fmt.Sprintf("is revision %d; the document is at %d", base, head.Revision)})
		}
		merged := body
		if base < head.Revision {
			if merged, err = d.rebase(ctx, head, base, body, by); err != nil {
				return state.Revision{}, fault.Wrap(op, err)
			}
		}
		if merged == head.Body {
			return head, nil
		}
		next := contract.DocumentRevised{Document: id, Revision: head.Revision + 1, Title: head.Title, Path: head.Path, Body: merged}
		rev, err := d.append(ctx, head.Seq, next, by)
		if !fault.Is(err, fault.Conflict) {
			return rev, fault.Wrap(op, err)
		}
		if err := d.state.CaughtUp(ctx, d.log); err != nil {
			return state.Revision{}, fault.Wrap(op, err)
		}
	}
	return state.Revision{}, fault.New(op, fault.Unavailable, "Try again in a moment.", fmt.Errorf("the document moved %d times while a change was merged", maxTries))
}

// rebase merges a change made on revision base with the newest revision.
func (d *Documents) rebase(ctx context.Context, head state.Revision, base int, body string, by Author) (string, error) {
	old, err := d.state.Revision(ctx, head.Document, base)
	if err != nil {
		return "", err
	}
	merged, conflicts := Merge(old.Body, head.Body, body)
	if len(conflicts) == 0 {
		return merged, nil
	}
	if by.By.Kind.Client() {
		users, err := d.userSince(ctx, head.Document, base)
		if err != nil {
			return "", err
		}
		if !users {
			return merged, nil // the agent's text stays in the history
		}
	}
	return "", fault.New("document.rebase", fault.Conflict, "Read the document as it is now and make the change again.", &ConflictError{Current: head, Conflicts: conflicts})
}

// userSince reports whether a user made a revision after base.
func (d *Documents) userSince(ctx context.Context, id string, base int) (bool, error) {
	for after := base; ; {
		list, err := d.state.Revisions(ctx, id, after, state.MaxPage)
		if err != nil {
			return false, err
		}
		for _, r := range list {
			if r.Role.Client() {
				return true, nil
			}
			after = r.Revision
		}
		if len(list) < state.MaxPage {
			return false, nil
		}
	}
}

// append writes a revision if the newest event about its document is last.
func (d *Documents) append(ctx context.Context, last uint64, r contract.DocumentRevised, by Author) (state.Revision, error) {
	draft, err := revise(&r, last, by)
	if err != nil {
		return state.Revision{}, err
	}
	events, err := d.log.Append(ctx, draft)
	if err != nil {
		return state.Revision{}, err
	}
	return state.RevisionIn(events[0], r), nil
}

// revise drafts the event of a revision by an author, conditional on last, and fills in the
// author's fields of the revision.
func revise(r *contract.DocumentRevised, last uint64, by Author) (contract.Draft, error) {
	const op = "document.revise"
	if len(r.Body) > MaxBody {
		return contract.Draft{}, tooLong(op, len(r.Body))
	}
	r.Base, r.Author, r.SHA256 = r.Revision-1, by.Name, hashOf(r.Body)
	if err := r.Validate(); err != nil {
		return contract.Draft{}, fault.New(op, fault.Invalid, "", err)
	}
	return contract.Draft{
		Actor: by.By, Type: "document.revised", Subject: r.Document, Data: r,
		Run: by.Run, Task: by.Task, Causation: by.Cause, Expect: &contract.Expect{Last: last},
	}, nil
}

func hashOf(body string) contract.BlobRef { return contract.NewBlobRef(sha256.Sum256([]byte(body))) }

func tooLong(op string, n int) error {
	return fault.New(op, fault.Exhausted, "Split the document.", fmt.Errorf("the body is %d bytes long; at most %d are allowed", n, MaxBody))
}

// fresh is Get once everything in the log is projected.
func (d *Documents) fresh(ctx context.Context, id string) (state.Revision, error) {
	if err := d.state.CaughtUp(ctx, d.log); err != nil {
		return state.Revision{}, err
	}
	return d.Get(ctx, id)
}

// Get returns the newest revision that is projected; fault.NotFound when there
// is no such document. Wait on the state first to read one's own write.
func (d *Documents) Get(ctx context.Context, id string) (state.Revision, error) {
	doc, err := d.state.Document(ctx, id)
	return doc, fault.Wrap("document.Get", err)
}

// At returns the newest revision of the document mirrored at a path.
func (d *Documents) At(ctx context.Context, at string) (state.Revision, error) {
	id, err := d.state.DocumentAt(ctx, at)
	if err != nil {
		return state.Revision{}, fault.Wrap("document.At", err)
	}
	return d.Get(ctx, id)
}

// Revision returns one revision with its body.
func (d *Documents) Revision(ctx context.Context, id string, revision int) (state.Revision, error) {
	r, err := d.state.Revision(ctx, id, revision)
	return r, fault.Wrap("document.Revision", err)
}

// History lists a document's revisions after a number, oldest first, without
// bodies; limit 0 means 100.
func (d *Documents) History(ctx context.Context, id string, after, limit int) ([]state.Revision, error) {
	list, err := d.state.Revisions(ctx, id, after, limit)
	return list, fault.Wrap("document.History", err)
}
