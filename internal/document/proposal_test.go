package document_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/document"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/ledger"
	"choir.dev/choiros/internal/state"
)

// byTask is an Associate that works on a task.
func byTask(name string) document.Author {
	return document.Author{Name: "associate", By: contract.AssociateOf(contract.DeriveID("task", name)), Run: contract.DeriveID("run", "of "+name), Task: contract.DeriveID("task", name)}
}

func propose(t testing.TB, d *document.Documents, id string, base int, body string, by document.Author) state.Proposal {
	t.Helper()
	p, ok, err := d.Propose(t.Context(), id, base, body, by, "")
	if err != nil || !ok {
		t.Fatalf("proposed: %v %v", ok, err)
	}
	return p
}

func list(t testing.TB, d *document.Documents, st *state.Store, log *ledger.Log, id string, open bool) []state.Proposal {
	t.Helper()
	if err := st.Wait(t.Context(), log.Last()); err != nil {
		t.Fatal(err)
	}
	got, err := d.Proposals(t.Context(), state.ProposalFilter{Document: id, Open: open})
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// touched makes a document in which a user and an agent changed the same line.
func touched(t testing.TB, d *document.Documents) (r state.Revision, theirs string) {
	t.Helper()
	r = create(t, d, "a\nb\nc\nd\ne\n")
	r, err := d.Revise(t.Context(), r.Document, 1, "a\nmine\nc\nd\ne\n", person)
	if err != nil {
		t.Fatal(err)
	}
	return r, "a\nits\nc\nd\nE\n"
}

func TestAProposalWaitsAndIsAccepted(t *testing.T) {
	d, st, log := open(t)
	head, theirs := touched(t, d)
	p := propose(t, d, head.Document, 1, theirs, byTask("one"))
	if now, err := d.Get(t.Context(), head.Document); err != nil || now.Body != head.Body {
		t.Errorf("proposing changed the document: %+v %v", now, err)
	}
	again := propose(t, d, head.Document, 1, theirs, byTask("one"))
	if open := list(t, d, st, log, head.Document, true); len(open) != 1 || open[0].Proposal != p.Proposal || again.Proposal != p.Proposal || open[0].Seq != p.Seq {
		t.Fatalf("%+v", open)
	}
	p, err := d.Proposal(t.Context(), head.Document, p.Proposal)
	if err != nil || p.Body != theirs || p.Base != 1 || p.Task != byTask("one").Task || p.Role != contract.KindAssociate {
		t.Errorf("%+v %v", p, err)
	}
	v, err := d.Preview(t.Context(), p)
	if err != nil || v.Merged != theirs || len(v.Overlaps) != 1 || v.Overlaps[0].Ours != "mine\n" || v.Head.Revision != 2 {
		t.Errorf("%+v %v", v, err)
	}
	// What the user writes elsewhere meanwhile is kept.
	if _, err := d.Revise(t.Context(), head.Document, 2, "A\nmine\nc\nd\ne\n", person); err != nil {
		t.Fatal(err)
	}
	done, err := d.Accept(t.Context(), head.Document, p.Proposal, person)
	if err != nil || done.Resolution != contract.ProposalAccepted || done.Revision != 4 {
		t.Fatalf("%+v %v", done, err)
	}
	if err := st.Wait(t.Context(), log.Last()); err != nil {
		t.Fatal(err)
	}
	// Line 1 is next to line 2, which both changed, so the proposal contains both lines.
	rev, err := st.Revision(t.Context(), head.Document, 4)
	if err != nil || rev.Body != theirs || rev.Author != "ana" || rev.Role != contract.KindPerson || rev.Cause != p.Proposal {
		t.Errorf("%+v %v", rev, err)
	}
	if kept, err := d.Revision(t.Context(), head.Document, 3); err != nil || kept.Body != "A\nmine\nc\nd\ne\n" {
		t.Errorf("the user's text is not in the history: %+v %v", kept, err)
	}
	if twice, err := d.Accept(t.Context(), head.Document, p.Proposal, person); err != nil || twice != done {
		t.Errorf("accepted again: %+v %v", twice, err)
	}
	if _, err := d.Dismiss(t.Context(), head.Document, p.Proposal, person); !fault.Is(err, fault.Conflict) {
		t.Errorf("dismissed after that: %v", err)
	}
	if open := list(t, d, st, log, head.Document, true); len(open) != 0 {
		t.Errorf("still open: %+v", open)
	}
	if bad, err := st.Poison(t.Context(), 0); err != nil || len(bad) > 0 {
		t.Errorf("poison: %+v %v", bad, err)
	}
}

func TestAProposalIsDismissedForGood(t *testing.T) {
	d, st, log := open(t)
	head, theirs := touched(t, d)
	p := propose(t, d, head.Document, 1, theirs, byTask("one"))
	for range 2 {
		if done, err := d.Dismiss(t.Context(), head.Document, p.Proposal, person); err != nil || done.Resolution != contract.ProposalDismissed || done.Revision != 0 {
			t.Fatalf("%+v %v", done, err)
		}
	}
	if _, err := d.Accept(t.Context(), head.Document, p.Proposal, person); !fault.Is(err, fault.Conflict) || fault.HintOf(err) == "" {
		t.Errorf("accepted after that: %v", err)
	}
	// Proposing the same change again returns the same proposal.
	if p := propose(t, d, head.Document, 1, theirs, byTask("one")); p.Status != string(contract.ProposalDismissed) {
		t.Errorf("it came back: %+v", p)
	}
	if now, err := d.Get(t.Context(), head.Document); err != nil || now.Revision != 2 || len(list(t, d, st, log, head.Document, true)) != 0 {
		t.Errorf("%+v %v", now, err)
	}
	if _, err := d.Accept(t.Context(), contract.NewID(), p.Proposal, person); !fault.Is(err, fault.NotFound) {
		t.Errorf("of another document: %v", err)
	}
}

func TestNewerProposalsTakeTheOldOnesPlace(t *testing.T) {
	d, st, log := open(t)
	head, theirs := touched(t, d)
	first := propose(t, d, head.Document, 1, theirs, byTask("one"))
	other := propose(t, d, head.Document, 1, theirs, byTask("two"))
	second := propose(t, d, head.Document, 1, theirs+"more\n", byTask("one"))
	if open := list(t, d, st, log, head.Document, true); len(open) != 2 || open[0].Proposal != second.Proposal || open[1].Proposal != other.Proposal {
		t.Fatalf("%+v", open)
	}
	if old, err := d.Proposal(t.Context(), head.Document, first.Proposal); err != nil || old.Status != string(contract.ProposalSuperseded) || old.Successor != second.Proposal {
		t.Errorf("%+v %v", old, err)
	}
	if _, err := d.Accept(t.Context(), head.Document, first.Proposal, person); !fault.Is(err, fault.Conflict) {
		t.Errorf("accepted a superseded one: %v", err)
	}
	for i := range document.MaxOpen + 3 {
		propose(t, d, head.Document, 1, theirs, byTask("many "+strconv.Itoa(i)))
	}
	open := list(t, d, st, log, head.Document, true)
	if len(open) != document.MaxOpen || open[0].Task != byTask("many "+strconv.Itoa(document.MaxOpen+2)).Task || open[len(open)-1].Task != byTask("many 3").Task {
		t.Errorf("%d are open, from %s to %s", len(open), open[len(open)-1].Task, open[0].Task)
	}
}

func TestWhatIsNoProposal(t *testing.T) {
	d, st, log := open(t)
	head, _ := touched(t, d)
	for name, body := range map[string]string{"what is there": head.Body, "the base": "a\nb\nc\nd\ne\n"} {
		if _, ok, err := d.Propose(t.Context(), head.Document, 1, body, byTask("one"), ""); ok || err != nil {
			t.Errorf("%s: %v %v", name, ok, err)
		}
	}
	if _, _, err := d.Propose(t.Context(), head.Document, 3, "x", byTask("one"), ""); contract.AsFieldError(err) == nil {
		t.Errorf("a base to come: %v", err)
	}
	if _, _, err := d.Propose(t.Context(), head.Document, 1, "x\x00", byTask("one"), ""); contract.AsFieldError(err) == nil {
		t.Errorf("NUL: %v", err)
	}
	if _, _, err := d.Propose(t.Context(), head.Document, 1, strings.Repeat("x", document.MaxBody+1), byTask("one"), ""); !fault.Is(err, fault.Exhausted) {
		t.Errorf("too long: %v", err)
	}
	if _, _, err := d.Propose(t.Context(), contract.NewID(), 1, "x", byTask("one"), ""); !fault.Is(err, fault.NotFound) {
		t.Errorf("no document: %v", err)
	}
	if all := list(t, d, st, log, head.Document, false); len(all) != 0 {
		t.Errorf("%+v", all)
	}
	// A proposal without a known base replaces the whole text, and is stored as a blob.
	big := strings.Repeat("a line of text\n", 8000)
	p := propose(t, d, head.Document, 0, big, byTask("big"))
	if done, err := d.Accept(t.Context(), head.Document, p.Proposal, person); err != nil || done.Revision != 3 {
		t.Fatalf("%+v %v", done, err)
	}
	if now, err := d.At(t.Context(), head.Path); err != nil || st.Wait(t.Context(), log.Last()) != nil {
		t.Error(now, err)
	}
	if now, err := d.Get(t.Context(), head.Document); err != nil || now.Body != big {
		t.Errorf("%d bytes, %v", len(now.Body), err)
	}
	// Once the document has this text, accepting the proposal makes no revision.
	small := propose(t, d, head.Document, 0, "small\n", byTask("small"))
	if _, err := d.Revise(t.Context(), head.Document, 3, "small\n", person); err != nil {
		t.Fatal(err)
	}
	if done, err := d.Accept(t.Context(), head.Document, small.Proposal, person); err != nil || done.Revision != 4 {
		t.Errorf("%+v %v", done, err)
	}
	if now, err := d.Get(t.Context(), head.Document); err != nil || now.Revision != 4 {
		t.Errorf("%+v %v", now, err)
	}
}

// halting is the log of a process that dies after some events of a call.
type halting struct {
	document.Log
	left int // how many events are stored before; negative: it does not die
}

var errDied = errors.New("the process died")

func (l *halting) Append(ctx context.Context, drafts ...contract.Draft) ([]contract.Event, error) {
	if l.left < 0 {
		return l.Log.Append(ctx, drafts...)
	}
	n := min(l.left, len(drafts))
	l.left -= n
	events, err := l.Log.Append(ctx, drafts[:n]...)
	if err == nil && n < len(drafts) {
		err = errDied
	}
	return events, err
}

// TestProposalsAfterACrash shows that wherever the process dies, repeating the call or waking the
// computer leads to the same state as without the crash.
func TestProposalsAfterACrash(t *testing.T) {
	for cut := range 4 {
		for _, woken := range []bool{false, true} {
			t.Run(fmt.Sprintf("after %d events, woken %v", cut, woken), func(t *testing.T) {
				d, st, log := open(t)
				head, theirs := touched(t, d)
				old := propose(t, d, head.Document, 1, theirs+"old\n", byTask("one"))
				dying := document.New(&halting{log, cut}, st)
				p, _, perr := dying.Propose(t.Context(), head.Document, 1, theirs, byTask("one"), "publish")
				if perr == nil {
					_, err := dying.Accept(t.Context(), head.Document, p.Proposal, person)
					if (err == nil) != (cut == 4) {
						t.Fatalf("accepted: %v", err)
					}
				}
				if woken {
					if err := d.Recover(t.Context()); err != nil {
						t.Fatal(err)
					}
					if cut == 3 {
						if open := list(t, d, st, log, head.Document, true); len(open) != 0 {
							t.Errorf("its text is in the document, and it is open: %+v", open)
						}
					}
				}
				if p, _, err := d.Propose(t.Context(), head.Document, 1, theirs, byTask("one"), "publish"); err != nil {
					t.Fatalf("%+v %v", p, err)
				} else if done, err := d.Accept(t.Context(), head.Document, p.Proposal, person); err != nil || done.Revision != 3 {
					t.Errorf("%+v %v", done, err)
				}
				all := list(t, d, st, log, head.Document, false)
				if len(all) != 2 || all[0].Status != "accepted" || all[0].By != "ana" || all[1].Proposal != old.Proposal || all[1].Status != "superseded" {
					t.Errorf("%+v", all)
				}
				if now, err := d.Get(t.Context(), head.Document); err != nil || now.Revision != 3 || now.Body != theirs {
					t.Errorf("%+v %v", now, err)
				}
				if bad, err := st.Poison(t.Context(), 0); err != nil || len(bad) > 0 {
					t.Errorf("poison: %+v %v", bad, err)
				}
			})
		}
	}
}

// TestAcceptedMergesLaw shows that every line that a proposal changed is as proposed, and that
// every line that the user changed, and that is not next to one of those, is the user's.
func TestAcceptedMergesLaw(t *testing.T) {
	d, _, _ := open(t)
	rapid.Check(t, func(rt *rapid.T) {
		n := rapid.IntRange(1, 12).Draw(rt, "lines")
		var base, ours, theirs []string
		mine, its := make([]bool, n), make([]bool, n)
		for i := range n {
			line := fmt.Sprintf("line %d\n", i)
			base = append(base, line)
			mine[i], its[i] = rapid.IntRange(0, 3).Draw(rt, "mine") == 0, rapid.IntRange(0, 3).Draw(rt, "its") == 0
			ours, theirs = append(ours, line), append(theirs, line)
			if mine[i] {
				ours[i] = "mine " + line
			}
			if its[i] {
				theirs[i] = "its " + line
			}
		}
		want := append([]string(nil), theirs...)
		overlaps, news := 0, false
		for i := 0; i < n; {
			end, byUser, byAgent := i, false, false
			for ; end < n && (mine[end] || its[end]); end++ {
				byUser, byAgent = byUser || mine[end], byAgent || its[end]
			}
			if end == i {
				i++
				continue
			}
			if byUser && byAgent {
				overlaps++
			} else if byUser {
				copy(want[i:end], ours[i:end])
			}
			news = news || byAgent
			i = end
		}
		id := contract.NewID()
		if _, err := d.Create(t.Context(), id, "A plan", "artifacts/runs/"+id+".md", strings.Join(base, ""), agent); err != nil {
			rt.Fatal(err)
		}
		head, err := d.Revise(t.Context(), id, 1, strings.Join(ours, ""), person)
		if err != nil {
			rt.Fatal(err)
		}
		p, ok, err := d.Propose(t.Context(), id, 1, strings.Join(theirs, ""), byTask("one"), "")
		if err != nil || ok != news {
			rt.Fatalf("proposed %v, want %v: %v", ok, news, err)
		}
		if !ok {
			return
		}
		v, err := d.Preview(t.Context(), p)
		if err != nil || v.Merged != strings.Join(want, "") || len(v.Overlaps) != overlaps {
			rt.Fatalf("%d overlaps, want %d:\n%s\nwant\n%s%v", len(v.Overlaps), overlaps, v.Merged, strings.Join(want, ""), err)
		}
		done, err := d.Accept(t.Context(), id, p.Proposal, person)
		if err != nil || done.Revision != head.Revision+1 {
			rt.Fatalf("%+v %v", done, err)
		}
	})
}
