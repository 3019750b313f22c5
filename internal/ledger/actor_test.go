package ledger_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/bus"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/ledger"
)

// A log that was written before events had actors can be read and continued. Its events
// name their actors as far as that is known, and a person's draft that is stored in it
// counts as the same when it is appended again, in either form.
func TestALogFromBeforeThereWereActorsGoesOn(t *testing.T) {
	cid, id := contract.NewCID(), contract.NewID()
	b := openBus(t, t.TempDir())
	if err := bus.EnsureStream(t.Context(), b.JetStream(), cid, 1); err != nil {
		t.Fatal(err)
	}
	old := contract.Event{SpecVersion: "1.0", ID: id, Source: "/computers/" + string(cid) + "/user", Type: "prompt.submitted", User: "ada",
		Time: time.Unix(1, 0).UTC(), DataContentType: "application/json", Data: json.RawMessage(`{"text":"make it blue"}`), Sequence: 1, Epoch: 1, Computer: cid, Prev: contract.FirstLink(cid)}
	raw, err := contract.MarshalEvent(old)
	if err != nil {
		t.Fatal(err)
	}
	msg := &nats.Msg{Subject: "log." + string(cid) + ".user.prompt.submitted", Data: raw, Header: nats.Header{"Choir-Owner": {"older"}}}
	if _, err := b.JetStream().PublishMsg(t.Context(), msg); err != nil {
		t.Fatal(err)
	}
	l := openLog(t, b, ledger.Options{CID: cid})
	for _, who := range []contract.Actor{contract.Person("ada"), contract.DesktopOf("ada")} {
		again := prompt("make it blue")
		again.ID, again.Actor = id, who
		if got := mustAppend(t, l, again)[0]; got.Sequence != 1 || got.Actor != "" || got.By() != contract.Person("ada") {
			t.Errorf("by %s again: %+v", who.Name(), got)
		}
	}
	next := prompt("and bold")
	next.Actor = contract.DesktopOf("ada")
	got := mustAppend(t, l, next)[0]
	if got.Sequence != 2 || got.Prev != contract.LinkOf(raw) || got.By() != next.Actor || got.Source != contract.Source(cid, contract.KindApp) || got.User != "ada" {
		t.Errorf("the first with an actor: %+v", got)
	}
	if all := wholeLog(t, l); len(all) != 2 || all[1].Actor != "app:desktop" {
		t.Errorf("the log reads as %+v", all)
	}
}

// An actor who may not append the event is refused, and nothing of their call is stored.
func TestWhoMayAppend(t *testing.T) {
	b := openBus(t, t.TempDir())
	l := openLog(t, b, ledger.Options{CID: contract.NewCID()})
	of := func(who contract.Actor) contract.Draft { d := prompt("x"); d.Actor = who; return d }
	for name, c := range map[string]struct {
		who  contract.Actor
		code fault.Code
	}{
		"nobody":                           {contract.Actor{}, fault.Invalid},
		"another kind":                     {contract.AssociateOf("t"), fault.Invalid},
		"a program of a box":               {contract.Actor{Kind: contract.KindProgram, ID: "b"}, fault.Invalid},
		"a person who may only look":       {contract.Person("u").Only(contract.CanRead), fault.Denied},
		"a desktop that may do all but it": {contract.DesktopOf("u").Without(contract.CanPrompt), fault.Denied},
		"a name of two lines":              {contract.Person("a\nb"), fault.Invalid},
	} {
		if _, err := l.Append(t.Context(), of(contract.Person("u")), of(c.who)); !fault.Is(err, c.code) || l.Last() != 0 {
			t.Errorf("%s: %v", name, err)
		}
	}
}
