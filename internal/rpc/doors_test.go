package rpc_test

import (
	"maps"
	"testing"

	"choir.dev/choiros/internal/rpc"
)

// What the code of a desktop may ask for, and what counts against its session, is
// written down here once more, and so is what not every program may: a word in a
// declaration opens a door.
func TestWhoMayCallWhat(t *testing.T) {
	desktop := map[string]rpc.Effect{
		"action": rpc.Stores, "log.read": rpc.Reads, "state.snapshot": rpc.Reads, "run.get": rpc.Reads, "run.undo": rpc.Governs,
		"document.get": rpc.Reads, "proposal.list": rpc.Reads, "proposal.get": rpc.Reads, "proposal.accept": rpc.Stores, "proposal.dismiss": rpc.Stores,
		"checkpoint.list": rpc.Reads, "checkpoint.create": rpc.Governs, "checkpoint.diff": rpc.Reads, "checkpoint.restore": rpc.Governs, "checkpoint.undo": rpc.Governs,
		"files.list": rpc.Reads, "exec.run": rpc.Stores, "exec.output": rpc.Reads, "exec.stop": rpc.Stops,
	}
	few := map[string]rpc.Doors{"account.link": rpc.Owner, "approval.answer": rpc.People, "frame.ticket": rpc.Console}
	gotDesktop, gotFew := map[string]rpc.Effect{}, map[string]rpc.Doors{}
	for _, m := range rpc.All() {
		d := m.About()
		if d.Doors&rpc.Desktop != 0 {
			gotDesktop[d.Name] = d.Effect
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
