package client

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"strings"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/rpc"
	"choir.dev/choiros/internal/view"
)

// streaming is a call of a method that is bound by hand, or why it can't be made.
type streaming struct {
	rpc.Request
	name string
	err  error
}

func stream[In rpc.Asked](m *rpc.Method[In, rpc.None], c *Client, in In) streaming {
	r, err := m.Request(c.computer, in)
	return streaming{r, "client " + m.Name, err}
}

// stream sends a body, none if nil, and returns a successful answer; the caller closes it.
func (c *Client) stream(ctx context.Context, s streaming, body io.Reader, content string) (*http.Response, error) {
	if s.err != nil {
		return nil, fault.New(s.name, fault.Invalid, "", s.err)
	}
	return c.do(ctx, request{method: s.Verb, path: strings.TrimPrefix(s.Path, "/api"), query: s.Query, header: s.Header, body: body, content: content})
}

// upload sends a stream and decodes the answer.
func upload[T any](ctx context.Context, c *Client, s streaming, body io.Reader, content string) (out T, err error) {
	res, err := c.stream(ctx, s, body, content)
	if err != nil {
		return out, err
	}
	defer func() { err = errors.Join(err, res.Body.Close()) }()
	if err := rpc.Decode(res.Body, &out); err != nil {
		return out, fault.Wrap(s.name, transportError(ctx, c.base, err))
	}
	return out, nil
}

// EventsOptions choose events. Limit 0 means all there are.
type EventsOptions struct {
	After   uint64
	Limit   int
	Types   []string
	Run     string
	Task    string
	Subject string
	Follow  bool
}

// Events yields events of the log in order. After an error nothing follows.
func (c *Client) Events(ctx context.Context, o EventsOptions) iter.Seq2[contract.Event, error] {
	return func(yield func(contract.Event, error) bool) {
		// Leaving the loop must end the stream on the server too.
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		res, err := c.stream(ctx, stream(rpc.EventsRead, c, rpc.EventsRequest{After: o.After, Limit: o.Limit, Type: o.Types, Run: o.Run, Task: o.Task, Subject: o.Subject, Follow: o.Follow}), nil, "")
		if err != nil {
			yield(contract.Event{}, err)
			return
		}
		defer res.Body.Close() // an error here loses nothing: every line was checked
		lines := bufio.NewScanner(res.Body)
		lines.Buffer(make([]byte, 0, 64<<10), contract.MaxEvent+1)
		for lines.Scan() {
			if len(bytes.TrimSpace(lines.Bytes())) == 0 {
				continue
			}
			e, err := contract.UnmarshalEvent(lines.Bytes())
			if err != nil {
				yield(contract.Event{}, fault.New("client.Events", fault.Unreachable, "The control plane is of another version; use its own choir.", err))
				return
			}
			if !yield(e, nil) {
				return
			}
		}
		if err := lines.Err(); err != nil {
			yield(contract.Event{}, fault.Wrap("client.Events", transportError(ctx, c.base, err)))
		}
	}
}

// Exec runs a command and connects it to streams; r.Stdin follows from
// streams.Stdin. It returns when the command has ended. When ctx ends, the
// command is killed.
func (c *Client) Exec(ctx context.Context, r view.ExecRequest, streams view.ExecIO) (view.Exit, error) {
	const op = "client.Exec"
	r.Stdin = streams.Stdin != nil
	head, err := json.Marshal(r)
	if err != nil {
		return view.Exit{}, fault.New(op, fault.Invalid, "", err)
	}
	body := io.Reader(bytes.NewReader(append(head, '\n')))
	if r.Stdin {
		body = io.MultiReader(body, streams.Stdin)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	res, err := c.stream(ctx, stream(rpc.ExecHTTP, c, rpc.Of{}), body, "application/x-ndjson")
	if err != nil {
		return view.Exit{}, fault.Wrap(op, err)
	}
	defer res.Body.Close() // the last frame said how the command ended
	in := bufio.NewReaderSize(res.Body, view.MaxFrame)
	var buf []byte
	for {
		kind, payload, err := view.ReadFrame(in, buf)
		if err != nil {
			if errors.Is(err, io.EOF) {
				err = fault.New("", fault.Unreachable, "Look at choir events for how the command ended.", errors.New("the connection ended before the command did"))
			} else {
				err = transportError(ctx, c.base, err)
			}
			return view.Exit{}, fault.Wrap(op, err)
		}
		buf = payload[:0]
		if done, exit, err := handleFrame(kind, payload, streams); done || err != nil {
			return exit, fault.Wrap(op, err)
		}
	}
}

// handleFrame handles one frame; done says that it was the last.
func handleFrame(kind view.FrameKind, payload []byte, streams view.ExecIO) (done bool, exit view.Exit, err error) {
	write := func(w io.Writer) error {
		if w == nil {
			return nil
		}
		_, err := w.Write(payload)
		return err
	}
	switch kind {
	case view.FrameStarted:
		var s view.Started
		if err := rpc.Decode(bytes.NewReader(payload), &s); err != nil {
			return false, view.Exit{}, fmt.Errorf("started frame: %w", err)
		}
		if streams.Started != nil {
			streams.Started(s.Command, s.Sequence)
		}
	case view.FrameStdout:
		return false, view.Exit{}, write(streams.Stdout)
	case view.FrameStderr:
		return false, view.Exit{}, write(streams.Stderr)
	case view.FrameExited:
		if err := rpc.Decode(bytes.NewReader(payload), &exit); err != nil {
			return false, view.Exit{}, fmt.Errorf("exit frame: %w", err)
		}
		return true, exit, nil
	case view.FrameFailed:
		return true, view.Exit{}, decodeProblem(http.StatusOK, payload)
	}
	return false, view.Exit{}, nil
}

// SignalCommand brings a signal or a terminal's new size to a command that runs.
func (c *Client) SignalCommand(ctx context.Context, command string, s view.CommandSignal) error {
	_, err := Call(ctx, c, rpc.CommandSignal, rpc.SignalRequest{OnCommand: rpc.OnCommand{Command: command}, Body: s})
	return err
}
