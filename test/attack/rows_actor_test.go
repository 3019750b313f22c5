package attack_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"testing"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/bus"
	"choir.dev/choiros/internal/defence"
	"choir.dev/choiros/internal/ledger"
	"choir.dev/choiros/internal/rpc"
	"choir.dev/choiros/internal/view"
)

// actorRows are actors who do what their kind may not.
var actorRows = []Row{
	{Number: 22, Attack: "the desktop's code has an approval answered in the log", Defences: []defence.Name{defence.ActorAppend}, Run: appends(contract.DesktopOf("u-1"), "approval.answered",
		&contract.ApprovalAnswered{Approval: contract.DeriveID("attack", "approval"), Digest: digestOf64, Answer: contract.ApprovalOnce})},
	{Number: 22, Attack: "an Associate says that a prompt was a person's", Defences: []defence.Name{defence.ActorAppend}, Run: appends(contract.AssociateOf(contract.DeriveID("attack", "task")), "prompt.submitted",
		&contract.PromptSubmitted{Text: "go on"})},
	{Number: 22, Attack: "an app that may only look has the workspace gone back", Defences: []defence.Name{defence.ActorAppendPower}, Run: appends(contract.DesktopOf("u-1").Only(contract.CanRead), "checkpoint.restored",
		&contract.CheckpointRestored{To: commit40, Safety: commit40, Checkpoint: commit40})},
	{Number: 22, Attack: "an Associate that may ask for no host asks a person for one", Defences: []defence.Name{defence.ActorAppendPower},
		Run: appends(contract.AssociateOf(contract.DeriveID("attack", "task")).Without(contract.CanNetwork), "approval.requested", askedFor(contract.Act{
			Kind: contract.ApprovalEgress, Run: contract.DeriveID("attack", "run"), Host: "a.example", Port: 443}))},
	{Number: 22, Attack: "a Director asks for a checkpoint in a desktop's name", Defences: []defence.Name{defence.ActorAsk, defence.ActorAskPower}, Run: asks(contract.DirectorOf("r"))},
	{Number: 22, Attack: "an app that may only look asks for a checkpoint", Defences: []defence.Name{defence.ActorAskPower}, Run: asks(contract.DesktopOf("u-1").Only(contract.CanRead))},
}

const (
	commit40   = "0123456789012345678901234567890123456789"
	digestOf64 = "0123456789012345678901234567890123456789012345678901234567890123"
)

// askedFor is an event that asks a person to allow an act.
func askedFor(act contract.Act) *contract.ApprovalRequested {
	digest, err := act.Digest()
	if err != nil {
		panic(err)
	}
	return &contract.ApprovalRequested{Approval: contract.DeriveID("attack", "approval"), Act: act, Digest: digest, Attempt: 1, Deadline: "2030-01-02T03:04:05Z"}
}

// asks makes an actor ask for a checkpoint on the bus. The attack works if the checkpoint is made.
func asks(who contract.Actor) func(*testing.T) Verdict {
	return func(t *testing.T) Verdict {
		made := false
		table := rpc.Table{}
		rpc.Bind(table, rpc.CheckpointCreate, func(context.Context, rpc.Caller, rpc.CheckpointRequest) (k view.Checkpointed, _ error) {
			made = true
			return k, nil
		})
		_, err := rpc.CheckpointCreate.Answer(t.Context(), table, rpc.Caller{Actor: who}, nil)
		return Verdict{made, fmt.Sprintf("asked: %v", err)}
	}
}

// appends makes an actor append an event. The attack works if the event is in the log.
func appends(who contract.Actor, eventType string, data contract.Payload) func(*testing.T) Verdict {
	return func(t *testing.T) Verdict {
		dir := t.TempDir()
		b, err := bus.Open(t.Context(), bus.Options{Dir: filepath.Join(dir, "nats"), KeysDir: filepath.Join(dir, "keys")})
		must(t, err)
		l, err := ledger.Open(t.Context(), b.JetStream(), ledger.Options{CID: contract.NewCID()})
		must(t, err)
		_, err = l.Append(t.Context(), contract.Draft{Actor: who, Type: eventType, Data: data})
		v := Verdict{l.Last() == 1, fmt.Sprintf("appended: %v", err)}
		must(t, errors.Join(l.Close(), b.Close()))
		return v
	}
}
