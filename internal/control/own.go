package control

import (
	"context"
	"errors"
	"slices"
	"time"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/control/origin"
	"choir.dev/choiros/internal/control/sheets"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/grant"
	"choir.dev/choiros/internal/rpc"
	"choir.dev/choiros/internal/trace"
	"choir.dev/choiros/internal/view"
)

// ownMethods are the declared methods that the control plane answers over HTTP itself: those whose
// answers need what a computer does not know, and those by which people steer a run.
func (s *Server) ownMethods() rpc.Table {
	t := rpc.Table{}
	rpc.Bind(t, rpc.ComputerGet, func(ctx context.Context, who rpc.Caller, _ rpc.Of) (view.Computer, error) {
		if info, asleep, err := s.options.Computers.Asleep(ctx, who.Computer); asleep || err != nil {
			return s.located(ctx, info, err)
		}
		c, err := s.options.Computers.Get(ctx, who.Computer)
		if err != nil {
			return view.Computer{}, err
		}
		return s.info(ctx, c)
	})
	rpc.Bind(t, rpc.ComputerRename, func(ctx context.Context, who rpc.Caller, in rpc.RenameRequest) (view.Acted, error) {
		return s.act(ctx, who, view.Action{Type: "computer.renamed", Data: &contract.ComputerRenamed{Name: in.Body.Name}})
	})
	rpc.Bind(t, rpc.ComputerWake, func(ctx context.Context, who rpc.Caller, in rpc.WakeRequest) (rpc.None, error) {
		return rpc.Done(s.options.Computers.Wake(ctx, who.Computer, in.Body))
	})
	rpc.Bind(t, rpc.ComputerRemove, func(ctx context.Context, who rpc.Caller, _ rpc.Of) (view.Computer, error) {
		c, err := s.options.Computers.Remove(ctx, who.Computer, who.Actor.Account())
		return s.located(ctx, c, err)
	})
	rpc.Bind(t, rpc.ComputerFork, s.fork)
	rpc.Bind(t, rpc.ComputerPutBack, func(ctx context.Context, who rpc.Caller, _ rpc.Of) (view.Computer, error) {
		c, err := s.options.Computers.PutBack(ctx, who.Computer)
		return s.located(ctx, c, err)
	})
	rpc.Bind(t, rpc.ComputerRecover, func(ctx context.Context, who rpc.Caller, _ rpc.Of) (rpc.None, error) {
		return rpc.Done(s.options.Computers.Recover(ctx, who.Computer))
	})
	rpc.Bind(t, rpc.FrameGet, func(ctx context.Context, who rpc.Caller, _ rpc.Of) (view.Frame, error) {
		c, err := s.options.Computers.Get(ctx, who.Computer)
		if err != nil {
			return view.Frame{}, err
		}
		return s.frame(ctx, c)
	})
	rpc.Bind(t, rpc.FrameTicket, s.ticket)
	s.bindRuns(t)
	s.bindPlane(t)
	s.bindMembers(t)
	s.bindAccounts(t)
	s.bindTokens(t)
	caller := func(ctx context.Context) string { return callerOf(ctx).stream() }
	sheets.Bind(t, sheets.Options{Identity: s.options.Identity, Caller: caller, Link: s.link, End: s.end, Stop: s.options.Stop})
	return t
}

// bindPlane binds the methods that concern no single computer.
func (s *Server) bindPlane(t rpc.Table) {
	rpc.Bind(t, rpc.ComputerList, func(ctx context.Context, who rpc.Caller, _ rpc.Nothing) (rpc.List[view.Computer], error) {
		mine, err := s.computersOf(ctx, who.Actor.Account())
		return rpc.Listed(mine, false, err)
	})
	rpc.Bind(t, rpc.ComputerCreate, s.create)
	rpc.Bind(t, rpc.ComputerRemoved, func(ctx context.Context, who rpc.Caller, _ rpc.Nothing) (rpc.List[view.Computer], error) {
		mine, err := s.removedOf(ctx, who.Actor.Account())
		return rpc.Listed(mine, false, err)
	})
	rpc.Bind(t, rpc.SecretList, func(ctx context.Context, _ rpc.Caller, _ rpc.Nothing) (rpc.List[view.Secret], error) {
		list, err := s.options.System.Secrets(ctx)
		return rpc.Listed(list, false, err)
	})
	rpc.Bind(t, rpc.SecretSet, func(ctx context.Context, who rpc.Caller, in rpc.SetSecretRequest) (rpc.None, error) {
		return rpc.Done(s.options.System.SetSecret(ctx, who.Actor, in.Name, in.Body.Value))
	})
	rpc.Bind(t, rpc.SecretRemove, func(ctx context.Context, who rpc.Caller, in rpc.OnSecret) (rpc.None, error) {
		return rpc.Done(s.options.System.RemoveSecret(ctx, who.Actor, in.Name))
	})
	rpc.Bind(t, rpc.ModelList, func(ctx context.Context, _ rpc.Caller, _ rpc.Nothing) (rpc.List[view.Model], error) {
		list, err := s.options.System.Models(ctx)
		return rpc.Listed(list, false, err)
	})
	rpc.Bind(t, rpc.ModelTest, func(ctx context.Context, _ rpc.Caller, in rpc.TestModelRequest) (view.ModelTest, error) {
		return s.options.System.TestModel(ctx, in.Body.Model)
	})
	rpc.Bind(t, rpc.SystemStatus, s.status)
	rpc.Bind(t, rpc.InboxList, func(ctx context.Context, who rpc.Caller, _ rpc.Nothing) (rpc.List[view.Waiting], error) {
		mine, err := s.mine(ctx, who.Actor.Account())
		if err != nil {
			return rpc.List[view.Waiting]{}, err
		}
		list, err := s.options.Computers.Waiting(ctx, mine)
		return rpc.Listed(list, false, err)
	})
	rpc.Bind(t, rpc.Doctor, func(ctx context.Context, _ rpc.Caller, _ rpc.Nothing) (rpc.List[view.Finding], error) {
		list, err := s.options.System.Doctor(ctx)
		return rpc.Listed(list, false, err)
	})
}

func (s *Server) bindRuns(t rpc.Table) {
	rpc.Bind(t, rpc.PromptSubmit, func(ctx context.Context, who rpc.Caller, in rpc.PromptRequest) (view.Acted, error) {
		p := in.Body
		return s.act(ctx, who, view.Action{ID: p.ID, Type: "prompt.submitted", Traceparent: trace.Traceparent(in.Traceparent), Data: &contract.PromptSubmitted{Text: p.Text, Model: p.Model, Budget: p.Budget, Continues: p.Continues, Route: p.Route, Effort: p.Effort, Summarise: p.Summarise, Review: p.Review}})
	})
	rpc.Bind(t, rpc.RunShow, func(ctx context.Context, who rpc.Caller, in rpc.ShowRunRequest) (view.Run, error) {
		c, err := s.options.Computers.Get(ctx, who.Computer)
		if err != nil {
			return view.Run{}, err
		}
		return s.awaitRun(ctx, who, c, in.Run, time.Duration(in.Wait)*time.Second)
	})
	for m, command := range map[*rpc.Method[rpc.OnRun, view.Acted]]contract.RunCommand{
		rpc.RunCancel: contract.CommandCancel, rpc.RunPause: contract.CommandPause, rpc.RunResume: contract.CommandResume,
	} {
		rpc.Bind(t, m, func(ctx context.Context, who rpc.Caller, in rpc.OnRun) (view.Acted, error) {
			return s.act(ctx, who, view.Action{Run: in.Run, Type: "run.commanded", Data: &contract.RunCommanded{Command: command}})
		})
	}
	rpc.Bind(t, rpc.RunModel, func(ctx context.Context, who rpc.Caller, in rpc.SwitchModelRequest) (view.Acted, error) {
		return s.act(ctx, who, view.Action{Run: in.Run, Type: "model.switched", Data: &contract.ModelSwitched{Model: in.Body.Model}})
	})
	rpc.Bind(t, rpc.RunSteer, func(ctx context.Context, who rpc.Caller, in rpc.SteerRequest) (view.Acted, error) {
		return s.act(ctx, who, view.Action{Run: in.Run, Type: "run.steered", Data: &contract.RunSteered{Text: in.Body.Text}})
	})
	rpc.Bind(t, rpc.RunAnswer, func(ctx context.Context, who rpc.Caller, in rpc.AnswerRequest) (view.Acted, error) {
		return s.act(ctx, who, view.Action{Run: in.Run, Type: "question.answered", Data: &contract.QuestionAnswered{Question: in.Body.Question, Answer: in.Body.Answer}})
	})
}

// status says how the computers of the caller are, and how the machine is if they may look after it.
func (s *Server) status(ctx context.Context, who rpc.Caller, _ rpc.Nothing) (out view.Status, err error) {
	mine, err := s.mine(ctx, who.Actor.Account())
	if err != nil {
		return view.Status{}, err
	}
	if out.Computers, err = s.options.Computers.Health(ctx, mine); err != nil {
		return view.Status{}, err
	}
	if who.Actor.Can(contract.CanMachine) {
		out.Machine = s.options.System.Machine(ctx)
	}
	out.Well = !slices.ContainsFunc(out.Computers, func(c view.ComputerHealth) bool { return !c.Well() }) &&
		!slices.ContainsFunc(out.Machine, func(p view.Part) bool { return !p.Well() })
	return out, nil
}

// act passes a person's action on to a computer.
func (s *Server) act(ctx context.Context, who rpc.Caller, a view.Action) (view.Acted, error) {
	if a.ID == "" {
		a.ID = contract.NewID()
	}
	if err := a.Validate(); err != nil {
		return view.Acted{}, err
	}
	c, err := s.options.Computers.Get(ctx, who.Computer)
	if err != nil {
		return view.Acted{}, err
	}
	a.By = who.Actor
	return c.Act(ctx, a.About())
}

// create makes a computer that the caller owns. The owner is recorded before the computer exists, so that
// nobody else is taken for its owner.
func (s *Server) create(ctx context.Context, who rpc.Caller, in rpc.CreateRequest) (view.Computer, error) {
	return s.makeOwn(ctx, who, in.Body.ID, in.Body.Name, func(cid contract.CID) (view.Computer, error) {
		return s.options.Computers.Create(ctx, cid, in.Body.Name)
	})
}

// fork makes a computer that the caller owns from a checkpoint of one that they may change.
func (s *Server) fork(ctx context.Context, who rpc.Caller, in rpc.ForkRequest) (view.Computer, error) {
	return s.makeOwn(ctx, who, in.Body.ID, in.Body.Name, func(cid contract.CID) (view.Computer, error) {
		return s.options.Computers.Fork(ctx, who.Actor, who.Computer, cid, in.Body.Name, in.Body.Checkpoint)
	})
}

// makeOwn makes a computer that the caller owns; without an id it draws one. If the computer can't be
// made, its owner's record is removed.
func (s *Server) makeOwn(ctx context.Context, who rpc.Caller, cid contract.CID, name string, do func(contract.CID) (view.Computer, error)) (_ view.Computer, err error) {
	if cid == "" {
		cid = contract.NewCID()
	}
	if err := (contract.ComputerRenamed{Name: name}).Validate(); err != nil {
		return view.Computer{}, err
	}
	p, err := s.adopt(ctx, cid, who.Actor.Account(), name)
	if err != nil {
		return view.Computer{}, err
	}
	defer func() { err = errors.Join(err, s.adopted(ctx, cid, err != nil)) }()
	if held, err := s.options.Identity.Held(ctx, who.Actor.Account(), cid); err != nil {
		return view.Computer{}, err
	} else if held.Role != grant.Owner {
		return view.Computer{}, fault.New("", fault.Conflict, "Draw another id, or leave it out.", errors.New("this id is taken"))
	}
	c, err := do(cid)
	if err != nil {
		return view.Computer{}, err
	}
	return s.placed(c, p), nil
}

// ticket makes a ticket with which the console's page opens the desktop.
func (s *Server) ticket(ctx context.Context, who rpc.Caller, in rpc.TicketRequest) (view.Ticket, error) {
	caller := callerOf(ctx)
	if caller.session == nil {
		return view.Ticket{}, fault.New("", fault.Denied, openConsole, errTokenTicket)
	}
	c, err := s.options.Computers.Get(ctx, who.Computer)
	if err != nil {
		return view.Ticket{}, err
	}
	info, err := s.info(ctx, c)
	if err != nil {
		return view.Ticket{}, err
	}
	ticket, err := s.options.Identity.NewTicket(ctx, caller.secret, info.ID)
	return view.Ticket{Action: s.hosts.Desktop(origin.Label(info.Handle, in.Generation)) + enterPath, Ticket: ticket}, err
}

// awaitRun returns a run as soon as it has ended or waits for a person, or in its current state after
// wait.
func (s *Server) awaitRun(ctx context.Context, who rpc.Caller, c Computer, id string, wait time.Duration) (view.Run, error) {
	after := c.Last()
	run, err := c.Run(ctx, id)
	if err != nil || wait == 0 || settled(run) {
		return run, err
	}
	ctx, release, err := s.hold(ctx, holderOf(callerOf(ctx)), func(context.Context) (contract.CID, error) {
		// From now on this request is registered, and ends when the caller's right is revoked; so the
		// right is checked once more.
		now, err := s.granted(ctx, contract.Person(who.Actor.Account()), callerOf(ctx).scope, who.Computer)
		if err == nil {
			err = rpc.RunShow.Permits(now)
		}
		return who.Computer, err
	})
	if err != nil {
		return view.Run{}, err
	}
	defer release()
	waiting, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	for e, err := range c.Follow(waiting, after) {
		if err != nil {
			if waiting.Err() != nil {
				break
			}
			return view.Run{}, err
		}
		if e.Run != id {
			continue
		}
		switch e.Type {
		case "run.reported", "run.moved", "question.asked", "approval.requested", "review.requested":
			if run, err = c.Run(ctx, id); err != nil || settled(run) {
				return run, err
			}
		}
	}
	return c.Run(ctx, id)
}

func settled(r view.Run) bool {
	return r.Status.Ended() || r.Status == contract.RunWaiting && len(r.Questions)+len(r.Approvals)+len(r.Reviews) > 0
}
