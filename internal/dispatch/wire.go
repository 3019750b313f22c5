package dispatch

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/awake"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/harness"
)

func boxID(kind string) string {
	var b [10]byte
	_, _ = rand.Read(b[:]) // never fails since Go 1.24
	return fmt.Sprintf("%s-%x", kind, b)
}

func clipText(s string, max int) string { return harness.Clip(s, max) }

// errGone is the refusal of whatever comes too late: the attempt has ended.
var errGone = errors.New("this attempt has ended")

func readJSON(w http.ResponseWriter, r *http.Request, max int64, v any) error {
	b, err := io.ReadAll(http.MaxBytesReader(w, r.Body, max))
	if err != nil {
		return err
	}
	return contract.DecodeStrict(b, int(max), v)
}

// refuse answers with a harness.Refusal. Status 0 chooses by the error.
func refuse(w http.ResponseWriter, status int, err error) {
	no := harness.Refusal{Reason: clipText(err.Error(), 2000)}
	if fe := contract.AsFieldError(err); fe != nil {
		no.Field, no.Reason = fe.Field, fe.Reason
	}
	if status == 0 {
		switch {
		case errors.Is(err, errGone):
			status = http.StatusGone
		case fault.Is(err, fault.Invalid), fault.Is(err, fault.NotFound), contract.AsFieldError(err) != nil:
			status = http.StatusBadRequest
		case fault.Is(err, fault.Denied):
			status = http.StatusForbidden
		case fault.Is(err, fault.Conflict), fault.Is(err, fault.Exhausted):
			status = http.StatusConflict
		default:
			status = http.StatusInternalServerError
		}
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(no) // the loop is gone if this fails
}

// maxLine bounds one line of a loop's answer, in bytes.
const maxLine = 1 << 20

// converse starts a loop in its box and reads its lines until its end. A loop
// that is silent for too long, a box that ends, or over saying so, ends it.
func converse[T any](ctx context.Context, box Box, times Times, path string, message any, over func() error) (end T, err error) {
	body, err := json.Marshal(message)
	if err != nil {
		return end, err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	var watch sync.WaitGroup
	defer watch.Wait()
	defer cancel(nil)
	watch.Go(func() {
		select {
		case <-box.Done():
			why := box.Err()
			if why == nil {
				why = errors.New("it ended")
			}
			cancel(fault.New("dispatch", fault.Unavailable, "", fmt.Errorf("box %s: %w", box.ID(), why)))
		case <-ctx.Done():
		}
	})
	silence := awake.AfterFunc(times.Silence, func() {
		cancel(fault.New("dispatch", fault.Timeout, "", &silentError{box.ID(), times.Silence}))
	})
	defer silence.Stop()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://box"+path, bytes.NewReader(body))
	if err != nil {
		return end, err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := box.Transport().RoundTrip(req)
	if err != nil {
		return end, because(ctx, err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		b, rerr := io.ReadAll(io.LimitReader(resp.Body, 4096))
		return end, fault.New("dispatch", fault.Internal, "", errors.Join(fmt.Errorf("box %s answered %s: %s", box.ID(), resp.Status, b), rerr))
	}
	sc := bufio.NewScanner(resp.Body)
	sc.Buffer(make([]byte, 0, 4096), maxLine)
	for sc.Scan() {
		silence.Reset(times.Silence)
		var l harness.Line[T]
		if err := contract.DecodeStrict(sc.Bytes(), maxLine, &l); err != nil {
			return end, fault.New("dispatch", fault.Invalid, "", fmt.Errorf("box %s: %w", box.ID(), err))
		}
		if l.End != nil {
			return *l.End, nil
		}
		if err := over(); err != nil {
			return end, err
		}
	}
	if err := sc.Err(); err != nil {
		return end, because(ctx, err)
	}
	return end, because(ctx, fault.New("dispatch", fault.Unavailable, "", fmt.Errorf("box %s ended without an answer", box.ID())))
}

func because(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return fault.New("dispatch", fault.Unavailable, "", err)
}
