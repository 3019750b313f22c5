package rpc_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/grant"
	"choir.dev/choiros/internal/rpc"
)

// What the code of a desktop may call, what counts against its session, and what not every
// program may call is written down here a second time, because one word in a declaration
// can give access.
func TestWhoMayCallWhat(t *testing.T) {
	desktop := map[string]rpc.Effect{
		"action": rpc.Stores, "log.read": rpc.Reads, "state.snapshot": rpc.Reads, "run.get": rpc.Reads, "run.follow": rpc.Reads, "run.trace": rpc.Reads, "computer.health": rpc.Reads, "run.undo": rpc.Governs, "review.show": rpc.Reads, "review.answer": rpc.Stores,
		"document.get": rpc.Reads, "document.revisions": rpc.Reads, "document.revise": rpc.Stores, "proposal.list": rpc.Reads, "proposal.get": rpc.Reads, "proposal.accept": rpc.Stores, "proposal.dismiss": rpc.Stores,
		"checkpoint.list": rpc.Reads, "checkpoint.create": rpc.Governs, "checkpoint.diff": rpc.Reads, "checkpoint.restore": rpc.Governs, "checkpoint.undo": rpc.Governs,
		"files.list": rpc.Reads, "exec.run": rpc.Stores, "exec.output": rpc.Reads, "exec.stop": rpc.Stops,
		"effect.show": rpc.Reads, "effect.compensate": rpc.Stores, "memory.list": rpc.Reads,
	}
	few := map[string]rpc.Callers{"account.invite": rpc.People, "account.link": rpc.Owner, "approval.answer": rpc.People, "effect.resolve": rpc.People, "frame.ticket": rpc.Console, "token.create": rpc.People,
		"session.list": rpc.People, "session.end": rpc.People, "session.link": rpc.People, "system.stop": rpc.People,
		"mcp.add": rpc.People, "mcp.approve": rpc.People, "mcp.remove": rpc.People, "mcp.revoke": rpc.People, "mcp.show": rpc.People}
	gotDesktop, gotFew := map[string]rpc.Effect{}, map[string]rpc.Callers{}
	for _, m := range rpc.All() {
		d := m.About()
		if d.Callers&rpc.Desktop != 0 {
			gotDesktop[d.Name] = d.Effect
			if slices.ContainsFunc(d.Takes(), func(c contract.Capability) bool { return !grant.Editor.May().Has(c) }) {
				t.Errorf("a desktop may call %s, which takes %v: its code is written by others than its visitor", d.Name, d.Takes())
			}
			if _, served := rpc.ByService(d.Name); !served {
				t.Errorf("%s is not served on the bus", d.Name)
			}
		} else if _, served := rpc.ByService(d.Name); served {
			t.Errorf("%s is served on the bus", d.Name)
		}
		if over := d.Callers & rpc.API; over != 0 && over != rpc.API {
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

// The capability that each method requires of its caller is written down here a second
// time, because one word in a declaration can give access.
func TestWhatMethodsTake(t *testing.T) {
	want := map[string]string{
		"read": "account.get approval.list approval.show checkpoint.diff checkpoint.get checkpoint.list computer.get computer.health computer.list computer.removed document.get document.list document.revisions effect.list effect.show egress.list events.read exec.output " +
			"files.get files.list frame.get frame.stream inbox.list library.list library.show log.read mcp.list member.list memory.list model.list proposal.get proposal.list review.list review.show run.follow run.get run.list run.show run.trace state.snapshot system.status trash.list",
		"prompt":            "action effect.compensate prompt.submit run.answer run.cancel run.model run.pause run.resume run.steer",
		"write":             "document.revise files.add_tar files.add_url files.move files.put files.remove memory.forget memory.remember proposal.accept proposal.dismiss review.answer trash.put_back",
		"exec":              "command.run command.signal command.stop exec.run exec.stop",
		"restore":           "checkpoint.create checkpoint.restore checkpoint.rewind checkpoint.undo run.undo",
		"arrange":           "computer.rename computer.wake",
		"approve":           "approval.answer effect.resolve mcp.add mcp.approve mcp.remove mcp.revoke mcp.show",
		"manage":            "computer.export computer.putback computer.rebuild computer.remove",
		"enter":             "frame.ticket",
		"invite":            "invitation.create invitation.list invitation.revoke member.change member.remove",
		"self":              "invitation.accept member.leave session.end session.link session.list token.create token.list token.revoke",
		"self read":         "git.token",
		"manage machine":    "computer.recover",
		"restore computers": "computer.fork",
		"accounts":          "account.change account.invite account.link account.list account.remove",
		"computers":         "computer.create",
		"secrets":           "secret.list secret.remove secret.set",
		"models":            "model.test",
		"machine":           "system.doctor system.stop",
	}
	got := map[string][]string{}
	for _, m := range rpc.All() {
		d := m.About()
		takes := strings.Trim(fmt.Sprint(d.Takes()), "[]")
		got[takes] = append(got[takes], d.Name)
		if !slices.ContainsFunc(d.Takes(), func(c contract.Capability) bool { return !grant.Viewer.May().Has(c) }) && d.Effect != rpc.Reads && d.May != contract.CanSelf && d.May != contract.CanEnter {
			t.Errorf("a viewer changes something by %s", d.Name)
		}
	}
	for takes, names := range got {
		slices.Sort(names)
		if strings.Join(names, " ") != want[takes] {
			t.Errorf("%s is taken by\n%s\nwant\n%s", takes, strings.Join(names, " "), want[takes])
		}
	}
	if len(got) != len(want) {
		t.Errorf("%d kinds of methods, want %d", len(got), len(want))
	}
}

// Tokens can be made only for capabilities that some method requires of programs: any other
// would promise something that does not exist.
func TestWhatTokensAreMadeForIsTaken(t *testing.T) {
	taken := map[contract.Capability]bool{}
	for _, m := range rpc.All() {
		if d := m.About(); d.Callers&rpc.Program != 0 {
			for _, c := range d.Takes() {
				taken[c] = true
			}
		}
	}
	for _, c := range contract.Capabilities {
		if lendable := slices.Contains(contract.TokenCapabilities, c); lendable != taken[c] {
			t.Errorf("a token is made for %s: %v; a program needs it: %v", c, lendable, taken[c])
		}
	}
	for name, may := range map[string][]contract.Capability{"none": {}, "what a person decides": {contract.CanApprove}, "what there is not": {contract.CanRead, "everything"}} {
		in := rpc.NewTokenRequest{}
		in.Body.Name, in.Body.May = "ci", may
		if in.Validate() == nil {
			t.Errorf("a token is made for %s", name)
		}
	}
}
