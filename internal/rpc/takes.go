package rpc

import (
	"errors"
	"fmt"
	"strings"
	"sync"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/defence"
	"choir.dev/choiros/internal/fault"
)

// takes is what each method takes of an actor, whatever was granted to the account
// behind it, by the methods' names: one that is not here can't be asked by anybody.
// It is made when a method is first asked for, for every verb begins with what is
// made before main (docs/adr/0188).
var takes = sync.OnceValue(func() map[string]contract.Capability {
	out := map[string]contract.Capability{}
	for c, names := range methodsTaking() {
		for _, name := range strings.Fields(names) {
			if out[name] != "" {
				panic("rpc: " + name + " takes two capabilities")
			}
			out[name] = c
		}
	}
	return out
})

func methodsTaking() map[contract.Capability]string {
	return map[contract.Capability]string{
		contract.CanRead: `computer.get computer.list frame.get frame.stream events.read log.read state.snapshot exec.output document.get document.revisions proposal.list proposal.get
		files.list files.get trash.list checkpoint.list checkpoint.get checkpoint.diff member.list member.leave account.get model.list run.list run.show run.get run.follow
		approval.list egress.list`,
		contract.CanPrompt:    `action prompt.submit run.steer run.answer run.cancel run.pause run.resume invitation.accept`,
		contract.CanWrite:     `document.revise proposal.accept proposal.dismiss files.put files.remove files.move files.add_url files.add_tar trash.put_back`,
		contract.CanExec:      `command.stop command.signal command.run exec.run exec.stop`,
		contract.CanRestore:   `checkpoint.create checkpoint.restore checkpoint.undo checkpoint.rewind run.undo`,
		contract.CanArrange:   `computer.rename`,
		contract.CanApprove:   `approval.answer`,
		contract.CanManage:    `computer.create computer.fork computer.removed computer.remove computer.putback computer.rebuild computer.wake computer.recover computer.export`,
		contract.CanEnter:     `frame.ticket`,
		contract.CanConfigure: `secret.list secret.set secret.remove model.test system.doctor`,
		contract.CanInvite: `member.change member.remove invitation.create invitation.list invitation.revoke account.link account.list account.invite account.change account.remove
		token.list token.create token.revoke git.token`,
	}
}

// Takes is the capability that a method takes of who asks it.
func (d Declared) Takes() contract.Capability { return takes()[d.Name] }

// AskedBy reports whether actors of a kind may ask a method: people over HTTP,
// a desktop's code on the bus, and nobody else.
func (d Declared) AskedBy(kind contract.ActorKind) bool {
	switch kind {
	case contract.KindPerson:
		return d.Doors&API != 0
	case contract.KindApp:
		return d.Doors&Desktop != 0
	}
	return false
}

// Permits refuses an actor who may not ask a method. Each door asks it before
// anything else is done.
func (d Declared) Permits(who contract.Actor) error {
	if !d.AskedBy(who.Kind) && !defence.Off(defence.ActorAsk) {
		return fault.New("", fault.Denied, "", fmt.Errorf("%s may not be asked by %s", d.Name, kindOf(who)))
	}
	c := d.Takes()
	if c == "" {
		return fault.New("", fault.Denied, "", errors.New("nothing says what "+d.Name+" takes of who asks it"))
	}
	if who.Kind.Can(c) && !who.Can(c) && !defence.Off(defence.ActorAskPower) {
		return fault.New("", fault.Denied, "Ask whoever owns the computer for it.", errors.New(string(who.Name())+" was not given what "+d.Name+" takes: "+string(c)))
	}
	return nil
}

func kindOf(who contract.Actor) string {
	if !who.Kind.Valid() {
		return "nobody"
	}
	return "whoever is of the kind " + string(who.Kind)
}
