package rpc_test

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"choir.dev/choiros/internal/grant"
	"choir.dev/choiros/internal/rpc"
)

// What the code of a desktop may ask for, and what counts against its session, is
// written down here once more, and so is what not every program may: a word in a
// declaration opens a door.
func TestWhoMayCallWhat(t *testing.T) {
	desktop := map[string]rpc.Effect{
		"action": rpc.Stores, "log.read": rpc.Reads, "state.snapshot": rpc.Reads, "run.get": rpc.Reads, "run.follow": rpc.Reads, "run.undo": rpc.Governs,
		"document.get": rpc.Reads, "document.revisions": rpc.Reads, "document.revise": rpc.Stores, "proposal.list": rpc.Reads, "proposal.get": rpc.Reads, "proposal.accept": rpc.Stores, "proposal.dismiss": rpc.Stores,
		"checkpoint.list": rpc.Reads, "checkpoint.create": rpc.Governs, "checkpoint.diff": rpc.Reads, "checkpoint.restore": rpc.Governs, "checkpoint.undo": rpc.Governs,
		"files.list": rpc.Reads, "exec.run": rpc.Stores, "exec.output": rpc.Reads, "exec.stop": rpc.Stops,
	}
	few := map[string]rpc.Doors{"account.invite": rpc.People, "account.link": rpc.Owner, "approval.answer": rpc.People, "frame.ticket": rpc.Console, "token.create": rpc.People}
	gotDesktop, gotFew := map[string]rpc.Effect{}, map[string]rpc.Doors{}
	for _, m := range rpc.All() {
		d := m.About()
		if d.Doors&rpc.Desktop != 0 {
			gotDesktop[d.Name] = d.Effect
			if d.May.Role == grant.Owner || d.May.Power != "" {
				t.Errorf("a desktop may call %s, which takes %+v: its code is written by others than its visitor", d.Name, d.May)
			}
			if _, served := rpc.ByService(d.Name); !served {
				t.Errorf("%s is not served on the bus", d.Name)
			}
		} else if _, served := rpc.ByService(d.Name); served {
			t.Errorf("%s is served on the bus", d.Name)
		}
		if over := d.Doors & rpc.API; over != 0 && over != rpc.API {
			gotFew[d.Name] = over
		}
	}
	if !maps.Equal(gotDesktop, desktop) {
		t.Errorf("a desktop may call, with effect:\n%v\nwant\n%v", gotDesktop, desktop)
	}
	if !maps.Equal(gotFew, few) {
		t.Errorf("not every program may call:\n%v\nwant\n%v", gotFew, few)
	}
}

// What each method takes of its caller is written down here once more: a word in a
// declaration lets somebody in.
func TestWhatMethodsTake(t *testing.T) {
	want := map[grant.Rule]string{
		grant.View: "approval.list checkpoint.diff checkpoint.get checkpoint.list computer.get document.get document.revisions egress.list events.read exec.output files.get files.list frame.get " +
			"frame.stream frame.ticket git.token log.read member.leave member.list proposal.get proposal.list run.follow run.get run.list run.show state.snapshot trash.list",
		grant.Edit: "action checkpoint.create checkpoint.restore checkpoint.rewind checkpoint.undo command.run command.signal command.stop computer.rename computer.wake document.revise exec.run exec.stop files.add_tar " +
			"files.add_url files.move files.put files.remove prompt.submit proposal.accept proposal.dismiss run.answer run.cancel run.pause run.resume run.steer run.undo trash.put_back",
		grant.Own: "approval.answer computer.export computer.putback computer.rebuild computer.remove invitation.create invitation.list invitation.revoke member.change member.remove",
		{Role: grant.Owner, Power: grant.Machine}: "computer.recover",
		grant.Anyone:                                 "account.get computer.list computer.removed invitation.accept model.list token.create token.list token.revoke",
		grant.With(grant.Accounts):                   "account.change account.invite account.link account.list account.remove",
		grant.With(grant.Computers):                  "computer.create",
		{Role: grant.Editor, Power: grant.Computers}: "computer.fork",
		grant.With(grant.Secrets):                    "secret.list secret.remove secret.set",
		grant.With(grant.Models):                     "model.test",
		grant.With(grant.Machine):                    "system.doctor",
	}
	got := map[grant.Rule][]string{}
	for _, m := range rpc.All() {
		d := m.About()
		got[d.May] = append(got[d.May], d.Name)
		if d.Effect != rpc.Reads && d.May == grant.View && d.Name != "frame.ticket" && d.Name != "member.leave" && d.Name != "git.token" {
			t.Errorf("a viewer changes something by %s", d.Name)
		}
	}
	for rule, names := range got {
		slices.Sort(names)
		if strings.Join(names, " ") != want[rule] {
			t.Errorf("%+v is taken by\n%s\nwant\n%s", rule, strings.Join(names, " "), want[rule])
		}
	}
	if len(got) != len(want) {
		t.Errorf("%d rules, want %d", len(got), len(want))
	}
}
