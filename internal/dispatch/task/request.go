package task

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/awake"
	"choir.dev/choiros/internal/defence"
	"choir.dev/choiros/internal/dispatch/catalogue"
	"choir.dev/choiros/internal/dispatch/ports"
	"choir.dev/choiros/internal/dispatch/webtools"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/tool"
	"choir.dev/choiros/internal/webpage"
)

// requestTool is the tool for requests that change something outside, each of which a person is asked about.
func requestTool(pages ports.Pages) catalogue.HostTool {
	return catalogue.HostTool{
		Tool:    webtools.Request(),
		Outside: &catalogue.Outside{Kind: contract.EffectRequest, Target: "the web", Key: "idempotency_key", Each: &catalogue.Each{Read: webtools.Read, Ask: askRequest}},
		Call: byAttempt(func(a *attempt, ctx context.Context, args json.RawMessage) (tool.Result, error) {
			return a.sendRequest(ctx, pages, args)
		})}
}

// askRequest asks a person about one request, wherever it goes: to name an address is to have it read.
func askRequest(ctx context.Context, q catalogue.Question) (approval, refused string, err error) {
	a, ok := ctx.Value(attemptKey{}).(*attempt)
	if !ok {
		return "", "", fault.New("dispatch.tool", fault.Internal, "", errors.New("no attempt asks about web_request"))
	}
	var in struct {
		Reason string `json:"reason"`
	}
	var s webpage.Sending
	if err := errors.Join(json.Unmarshal(q.Args, &in), json.Unmarshal(q.Leaves, &s)); err != nil {
		return "", "", fault.New("dispatch.request", fault.Invalid, "", err)
	}
	s, at, err := s.Spell()
	if err != nil {
		return "", "", fault.New("dispatch.request", fault.Invalid, "", err)
	}
	act := contract.Act{Kind: contract.ApprovalRequest, Run: a.ref.Run, Host: at.Host, Port: at.Port, URL: at.URL, Method: s.Method, Sends: q.Sends, Again: q.Again}
	if defence.Off(defence.RequestAsked) {
		return contract.DeriveID(string(q.Sends), "nobody was asked"), "", nil
	}
	w, why, err := a.request(ctx, act, act.Target(), contract.Claim(in.Reason), webtools.Card(s, q.Before))
	if err != nil {
		return "", "", err
	}
	if why == "" {
		if err := a.awaitApprovals(ctx, []*waiting{w}); err != nil {
			return "", "", err
		}
		if err := a.run.Settle(ctx); err != nil {
			return "", "", err
		}
		if why = a.refusal(w); why == "" {
			return w.id, "", nil
		}
	}
	return "", fmt.Sprintf("%s was not sent: %s. Do without it, and say so in your summary; asking again does not help.", act.Target(), why), nil
}

// sendRequest sends what a person allowed.
func (a *attempt) sendRequest(ctx context.Context, pages ports.Pages, args json.RawMessage) (tool.Result, error) {
	var s webpage.Sending
	err := json.Unmarshal(args, &s)
	s, at, bad := s.Spell()
	if err := errors.Join(err, bad); err != nil {
		return tool.Failed("Nothing was sent: %v.", err).End(contract.EffectFailed), nil
	}
	timed, cancel := awake.WithTimeout(ctx, pageTime)
	defer cancel()
	answer, err := pages.Send(timed, ports.SendRequest{Run: a.ref.Run, Task: a.ref.Task, Address: at, Sending: s, Decided: a.decided})
	if err != nil {
		return tool.Failed("Nothing was sent: its box failed: %s.", strings.TrimSuffix(fault.Text(err), ".")).End(contract.EffectFailed), nil
	}
	return webtools.Answered(s, answer), nil
}
