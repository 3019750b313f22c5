package control

import (
	"context"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/view"
)

const atComputer = "/api/computers/{computer}"

func (s *Server) routeComputers(hapi huma.API) {
	register(hapi, s, route(http.MethodGet, "/api/computers", "computers-list", "Your computers, oldest first"), requestTimeout, func(ctx context.Context, _ *struct{}) (*outPage[view.Computer], error) {
		mine, err := s.computersOf(ctx, callerOf(ctx).user)
		return listOf(mine, false), err
	})
	register(hapi, s, route(http.MethodGet, atComputer, "computers-get", "One computer"), requestTimeout, func(ctx context.Context, in *AtComputer) (*out[view.Computer], error) {
		c, err := s.computer(ctx, in.Computer)
		if err != nil {
			return nil, err
		}
		info, err := s.info(ctx, c)
		return &out[view.Computer]{info}, err
	})
	register(hapi, s, route(http.MethodPatch, atComputer, "computers-rename", "Give a computer another name; its desktop's address stays"), requestTimeout, func(ctx context.Context, in *struct {
		AtComputer
		Body struct {
			Name string `json:"name" required:"true" minLength:"1" maxLength:"100"`
		}
	}) (*out[view.Acted], error) {
		return s.act(ctx, in.Computer, view.Action{Type: "computer.renamed", Data: &contract.ComputerRenamed{Name: in.Body.Name}})
	})
	register(hapi, s, route(http.MethodPost, atComputer+"/rebuild", "computers-rebuild", "Replay the log into a new state file"), longTimeout, func(ctx context.Context, in *struct {
		AtComputer
		Body struct {
			Check bool `json:"check,omitempty" doc:"only compare"`
		}
	}) (*out[view.Rebuilt], error) {
		c, err := s.computer(ctx, in.Computer)
		if err != nil {
			return nil, err
		}
		r, err := c.Rebuild(ctx, in.Body.Check)
		return &out[view.Rebuilt]{r}, err
	})
}

// act gives a computer one of its user's intentions.
func (s *Server) act(ctx context.Context, computer string, a view.Action) (*out[view.Acted], error) {
	if a.ID == "" {
		a.ID = contract.NewID()
	}
	if err := a.Validate(); err != nil {
		return nil, err
	}
	reach := s.computer
	if a.Type == "run.commanded" { // cancel, pause, resume
		reach = s.governed
	}
	c, err := reach(ctx, computer)
	if err != nil {
		return nil, err
	}
	a.User = callerOf(ctx).user
	done, err := c.Act(ctx, a.About())
	return &out[view.Acted]{done}, err
}

func (s *Server) routeRuns(hapi huma.API) {
	const atRun = atComputer + "/runs/{run}"
	type OnRun struct {
		AtComputer
		Run string `path:"run" maxLength:"36"`
	}
	register(hapi, s, route(http.MethodPost, atComputer+"/prompts", "prompts-submit", "Submit an intention; it causes a run"), requestTimeout, func(ctx context.Context, in *struct {
		AtComputer
		Body view.Prompt
	}) (*out[view.Acted], error) {
		p := in.Body
		return s.act(ctx, in.Computer, view.Action{ID: p.ID, Type: "prompt.submitted", Data: &contract.PromptSubmitted{Text: p.Text, Model: p.Model, Budget: p.Budget}})
	})
	register(hapi, s, route(http.MethodGet, atComputer+"/runs", "runs-list", "Runs, newest first"), requestTimeout, func(ctx context.Context, in *struct {
		AtComputer
		Paged
	}) (*outPage[view.Run], error) {
		c, err := s.computer(ctx, in.Computer)
		if err != nil {
			return nil, err
		}
		runs, err := c.Runs(ctx, in.Before, in.Limit)
		return listOf(runs, len(runs) >= in.Limit), err
	})
	register(hapi, s, route(http.MethodGet, atRun, "runs-get", "One run with its tasks; with wait, as soon as it has ended or asks something"), longTimeout, func(ctx context.Context, in *struct {
		OnRun
		Wait int `query:"wait" minimum:"0" maximum:"300" doc:"seconds to wait; then it is answered as it stands"`
	}) (*out[view.Run], error) {
		if err := contract.ValidID("run", in.Run); err != nil {
			return nil, err
		}
		c, err := s.computer(ctx, in.Computer)
		if err != nil {
			return nil, err
		}
		run, err := s.awaitRun(ctx, c, in.Run, time.Duration(in.Wait)*time.Second)
		return &out[view.Run]{run}, err
	})
	for _, cmd := range []struct {
		contract.RunCommand
		doc string
	}{
		{contract.CommandCancel, "Cancel a run"}, {contract.CommandPause, "Pause a run before its next step"}, {contract.CommandResume, "Let a paused run go on"},
	} {
		register(hapi, s, route(http.MethodPost, atRun+"/"+string(cmd.RunCommand), "runs-"+string(cmd.RunCommand), cmd.doc), requestTimeout, func(ctx context.Context, in *OnRun) (*out[view.Acted], error) {
			return s.actOnRun(ctx, in.Computer, in.Run, "run.commanded", &contract.RunCommanded{Command: cmd.RunCommand})
		})
	}
	register(hapi, s, route(http.MethodPost, atRun+"/steer", "runs-steer", "Say something to a run while it goes on"), requestTimeout, func(ctx context.Context, in *struct {
		OnRun
		Body struct {
			Text string `json:"text" required:"true" minLength:"1" maxLength:"32768"`
		}
	}) (*out[view.Acted], error) {
		return s.actOnRun(ctx, in.Computer, in.Run, "run.steered", &contract.RunSteered{Text: in.Body.Text})
	})
	register(hapi, s, route(http.MethodPost, atRun+"/answer", "runs-answer", "Answer a run's question"), requestTimeout, func(ctx context.Context, in *struct {
		OnRun
		Body view.Answer
	}) (*out[view.Acted], error) {
		return s.actOnRun(ctx, in.Computer, in.Run, "question.answered", &contract.QuestionAnswered{Question: in.Body.Question, Answer: in.Body.Answer})
	})
}

func (s *Server) actOnRun(ctx context.Context, computer, run, eventType string, data contract.Payload) (*out[view.Acted], error) {
	return s.act(ctx, computer, view.Action{Type: eventType, Run: run, Data: data})
}

// awaitRun returns a run as soon as it has ended or asks something, or as it
// stands after wait.
func (s *Server) awaitRun(ctx context.Context, c Computer, id string, wait time.Duration) (view.Run, error) {
	after := c.Last()
	run, err := c.Run(ctx, id)
	if err != nil || wait == 0 || settled(run) {
		return run, err
	}
	ctx, release := s.attach(ctx, sessionID(callerOf(ctx)))
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
		case "run.reported", "run.moved", "question.asked", "approval.requested":
			if run, err = c.Run(ctx, id); err != nil || settled(run) {
				return run, err
			}
		}
	}
	return c.Run(ctx, id)
}

func settled(r view.Run) bool {
	return r.Status.Ended() || r.Status == contract.RunWaiting && len(r.Questions)+len(r.Approvals) > 0
}
