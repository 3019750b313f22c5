package harness

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"strconv"
	"sync"
	"time"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/fault"
)

// Headers of a loop's requests to the host.
const (
	HeaderFence = "Choir-Fence" // the fencing token of the attempt
	HeaderCall  = "Choir-Call"  // id of a tool call
	HeaderTurn  = "Choir-Turn"  // how many bytes at the beginning of a body are a turn to record before the rest is looked at
	HeaderNews  = "Choir-News"  // of the answer to a tool call: "none" if there is nothing that the loop was not told, and it need not ask
)

// Host is how a loop in a box reaches the host over its tether.
type Host struct {
	Client *http.Client
	Base   string // such as http://host; empty means that
	Fence  string // sent with every request
}

// Refusal is the host's reason not to do what a loop asked. Field names what
// is wrong with the request, when something is.
type Refusal struct {
	Status int    `json:"-"`
	Field  string `json:"field,omitempty"`
	Reason string `json:"reason"`
}

func (r *Refusal) Error() string {
	if r.Field != "" {
		return r.Field + ": " + r.Reason
	}
	return r.Reason
}

// Clock is how much of its wall-clock budget the host counts as used by a loop. Only the
// host knows when it could not answer because it stood still itself.
type Clock struct {
	UsedMS int64 `json:"used_ms"`
}

// Used asks the host for the clock. The answer comes once the host runs.
func (h Host) Used(ctx context.Context) (time.Duration, error) {
	var c Clock
	err := h.Post(ctx, "/clock", nil, struct{}{}, &c)
	return time.Duration(c.UsedMS) * time.Millisecond, err
}

// MaxReply bounds what a loop reads of one answer, in bytes.
const MaxReply = 16 << 20

// Post sends in as JSON and decodes the answer into out, which may be nil. A
// 4xx answer is a *Refusal; of any other that is not 200 the error has the host's reason.
func (h Host) Post(ctx context.Context, path string, header map[string]string, in, out any) error {
	body, err := json.Marshal(in)
	if err != nil {
		return fault.New("harness.Post", fault.Invalid, "", err)
	}
	_, err = h.post(ctx, path, header, body, out)
	return err
}

// PostCall sends a tool's arguments as Post does, behind the turn that makes the call. The answer's header may have HeaderNews.
func (h Host) PostCall(ctx context.Context, path string, header map[string]string, turn contract.TurnRecorded, args json.RawMessage, out any) (http.Header, error) {
	body, err := json.Marshal(turn)
	if err != nil {
		return nil, fault.New("harness.Post", fault.Invalid, "", err)
	}
	header = maps.Clone(header)
	header[HeaderTurn] = strconv.Itoa(len(body))
	return h.post(ctx, path, header, append(body, args...), out)
}

func (h Host) post(ctx context.Context, path string, header map[string]string, body []byte, out any) (http.Header, error) {
	base := h.Base
	if base == "" {
		base = "http://host"
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, base+path, bytes.NewReader(body))
	if err != nil {
		return nil, fault.New("harness.Post", fault.Invalid, "", err)
	}
	req.Header.Set("Content-Type", "application/json")
	if h.Fence != "" {
		req.Header.Set(HeaderFence, h.Fence)
	}
	for k, v := range header {
		req.Header.Set(k, v)
	}
	resp, err := h.Client.Do(req)
	if err != nil {
		if ctx.Err() != nil {
			return nil, fault.Wrap("harness.Post "+path, context.Cause(ctx))
		}
		return nil, fault.New("harness.Post "+path, fault.Unavailable, "", err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(io.LimitReader(resp.Body, MaxReply+1))
	if err != nil || len(b) > MaxReply {
		return nil, fault.New("harness.Post "+path, fault.Unavailable, "", fmt.Errorf("the answer could not be read whole: %w", err))
	}
	if resp.StatusCode >= 400 && resp.StatusCode < 500 {
		r := &Refusal{Status: resp.StatusCode}
		if json.Unmarshal(b, r) != nil || r.Reason == "" {
			r.Reason = Clip(string(b), 1000)
		}
		return nil, r
	}
	if resp.StatusCode != http.StatusOK {
		var r Refusal
		if json.Unmarshal(b, &r) == nil && r.Reason != "" {
			return nil, fault.New("harness.Post "+path, fault.Unavailable, "", errors.New(r.Error()))
		}
		return nil, fault.New("harness.Post "+path, fault.Unavailable, "", fmt.Errorf("the host answered %s: %s", resp.Status, Clip(string(b), 500)))
	}
	if out == nil {
		return resp.Header, nil
	}
	if err := json.Unmarshal(b, out); err != nil {
		return nil, fault.New("harness.Post "+path, fault.Invalid, "", err)
	}
	return resp.Header, nil
}

// Line is one NDJSON line that a loop answers its start with: heartbeats while
// it works, then exactly one End.
type Line[T any] struct {
	Heartbeat int `json:"beat,omitempty"`
	End       *T  `json:"end,omitempty"`
}

// Stream runs work and writes its lines: a heartbeat at once and then at every interval
// until work is done, then its end. It returns when work has.
func Stream[T any](w http.ResponseWriter, r *http.Request, interval time.Duration, work func(context.Context) T) {
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	w.Header().Set("Content-Type", "application/x-ndjson")
	rc := http.NewResponseController(w)
	var mu sync.Mutex
	send := func(l Line[T]) {
		mu.Lock()
		defer mu.Unlock()
		b, err := json.Marshal(l)
		if err == nil {
			_, err = w.Write(append(b, '\n'))
		}
		if err == nil {
			err = rc.Flush()
		}
		if err != nil {
			cancel() // the host is gone, so nobody waits for the rest
		}
	}
	done := make(chan struct{})
	var beating sync.WaitGroup
	beating.Go(func() {
		t := time.NewTicker(interval)
		defer t.Stop()
		for n := 1; ; n++ {
			send(Line[T]{Heartbeat: n})
			select {
			case <-done:
				return
			case <-ctx.Done():
				return
			case <-t.C:
			}
		}
	})
	end := work(ctx)
	close(done)
	beating.Wait()
	send(Line[T]{End: &end})
}
