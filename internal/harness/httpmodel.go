package harness

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"sync/atomic"
	"time"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/awake"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/turnlines"
)

// HTTPModel asks the host's gateway for turns: POST {Base}/model/turns with a
// request as package turnlines has it, answered by NDJSON contract.TurnChunk lines. It needs no key; the
// host knows by the tether who asks. It serves one loop, which asks for one turn at a time.
type HTTPModel struct {
	Client *http.Client
	Base   string // such as http://host; empty means that
	Fence  string // sent along when set
	// Idle ends a stream on which nothing arrives for so long; 0 means five minutes.
	Idle time.Duration
	// Ahead returns a turn that is to be recorded before the request is looked at, nil if none is; Sent is called when
	// the host has one. It may get one twice.
	Ahead func() *contract.TurnRecorded
	Sent  func()

	lines turnlines.Encoder
}

// maxStream bounds what is read of one answer, in bytes.
const maxStream = 2 * contract.MaxTurn

var errIdle = errors.New("the stream fell silent")

// Turn implements Model.
func (m *HTTPModel) Turn(ctx context.Context, req contract.TurnRequest, onDelta func(string)) (contract.Turn, error) {
	body, err := m.lines.Encode(req)
	if err != nil {
		return contract.Turn{}, fault.New("harness.Turn", fault.Invalid, "", err)
	}
	if len(body) > contract.MaxTurn {
		return contract.Turn{}, &contract.TurnError{Code: "too_large", Message: fmt.Sprintf("the request is %d bytes long; at most %d are allowed", len(body), contract.MaxTurn)}
	}
	ahead := 0
	if m.Ahead != nil {
		if t := m.Ahead(); t != nil {
			b, err := json.Marshal(t)
			if err != nil {
				return contract.Turn{}, fault.New("harness.Turn", fault.Invalid, "", err)
			}
			ahead, body = len(b), append(b, body...)
		}
	}
	idle := m.Idle
	if idle <= 0 {
		idle = 5 * time.Minute
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	// A host that stood still could send nothing: it is asked, which waits until it runs,
	// and then gets the whole idle time once more.
	var asked atomic.Bool
	host := Host{Client: m.Client, Base: m.Base, Fence: m.Fence}
	var timer *awake.Timer
	set := make(chan struct{})
	timer = awake.AfterFunc(idle, func() {
		<-set
		if !asked.Swap(true) {
			if _, err := host.Used(ctx); err == nil && ctx.Err() == nil {
				timer.Reset(idle)
				return
			}
		}
		cancel(errIdle)
	})
	close(set)
	defer timer.Stop()

	base := m.Base
	if base == "" {
		base = "http://host"
	}
	hr, err := http.NewRequestWithContext(ctx, http.MethodPost, base+"/model/turns", bytes.NewReader(body))
	if err != nil {
		return contract.Turn{}, fault.New("harness.Turn", fault.Invalid, "", err)
	}
	hr.Header.Set("Content-Type", "application/x-ndjson")
	if m.Fence != "" {
		hr.Header.Set(HeaderFence, m.Fence)
	}
	if ahead > 0 {
		hr.Header.Set(HeaderTurn, strconv.Itoa(ahead))
	}
	resp, err := m.Client.Do(hr)
	if err != nil {
		return contract.Turn{}, broken(ctx, err)
	}
	defer resp.Body.Close()
	if ahead > 0 && resp.StatusCode == http.StatusOK {
		m.Sent()
	}
	if resp.StatusCode != http.StatusOK {
		return contract.Turn{}, httpError(resp)
	}
	return readTurn(ctx, resp.Body, func() { asked.Store(false); timer.Reset(idle) }, onDelta)
}

func httpError(resp *http.Response) error {
	b, _ := io.ReadAll(io.LimitReader(resp.Body, 64<<10)) // whatever could be read is shown
	var c contract.TurnChunk
	if json.Unmarshal(b, &c) == nil && c.Error != nil {
		return c.Error
	}
	return &contract.TurnError{Code: "unavailable", Message: fmt.Sprintf("the gateway answered %s: %s", resp.Status, oneLine(Clip(string(b), 500), 500)),
		Retriable: resp.StatusCode == http.StatusTooManyRequests || resp.StatusCode >= 500}
}

func readTurn(ctx context.Context, r io.Reader, alive func(), onDelta func(string)) (contract.Turn, error) {
	sc := bufio.NewScanner(io.LimitReader(r, maxStream))
	sc.Buffer(make([]byte, 0, 64<<10), contract.MaxTurn)
	for sc.Scan() {
		alive()
		line := bytes.TrimSpace(sc.Bytes())
		if len(line) == 0 {
			continue
		}
		var c contract.TurnChunk
		if err := json.Unmarshal(line, &c); err != nil {
			return contract.Turn{}, &contract.TurnError{Code: "invalid", Message: "the gateway's answer is not a turn: " + err.Error(), Retriable: true}
		}
		switch {
		case c.Error != nil:
			return contract.Turn{}, c.Error
		case c.Turn != nil:
			return *c.Turn, nil
		case c.Delta != "" && onDelta != nil:
			onDelta(c.Delta)
		}
	}
	if err := sc.Err(); err != nil && !errors.Is(err, bufio.ErrTooLong) {
		return contract.Turn{}, broken(ctx, err)
	} else if err != nil {
		return contract.Turn{}, &contract.TurnError{Code: "too_large", Message: "one line of the answer is too long"}
	}
	return contract.Turn{}, &contract.TurnError{Code: "unavailable", Message: "the answer ended, or grew too long, without a turn", Retriable: true}
}

func broken(ctx context.Context, err error) error {
	if context.Cause(ctx) == errIdle {
		return &contract.TurnError{Code: "timeout", Message: errIdle.Error(), Retriable: true}
	}
	if ctx.Err() != nil {
		return fault.Wrap("harness.Turn", context.Cause(ctx))
	}
	return &contract.TurnError{Code: "unavailable", Message: err.Error(), Retriable: true}
}
