package bus

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"

	"github.com/nats-io/nats.go"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/fault"
)

// Refill stores existing messages again, in order and in large batches, in a stream that is
// made anew.
type Refill struct {
	bus     *Bus
	pending []*nats.Msg
	bytes   int
}

const (
	refillCount = 500
	refillBytes = 8 << 20
)

// Refill begins to fill the stream of a computer's log, which it makes if needed.
func (b *Bus) Refill(ctx context.Context, cid contract.CID) (*Refill, error) {
	if err := b.EnsureStream(ctx, cid); err != nil {
		if why := b.Health(); why != nil {
			err = errors.Join(why, err)
		}
		return nil, fault.Wrap("bus.Refill", err)
	}
	return &Refill{bus: b}, nil
}

// Add stores one message, possibly together with the next ones; data must not change until
// Flush.
func (r *Refill) Add(ctx context.Context, subject string, header nats.Header, data []byte) error {
	r.pending = append(r.pending, &nats.Msg{Subject: subject, Header: header, Data: data})
	if r.bytes += len(data); len(r.pending) < refillCount && r.bytes < refillBytes {
		return nil
	}
	return r.Flush(ctx)
}

// Flush stores the messages that were added; when it returns, they are on disk.
func (r *Refill) Flush(ctx context.Context) error {
	const op = "bus.Refill"
	if len(r.pending) == 0 {
		return nil
	}
	batch := contract.NewID()
	for i, m := range r.pending {
		if m.Header == nil {
			m.Header = nats.Header{}
		}
		m.Header["Nats-Batch-Id"] = []string{batch}
		m.Header["Nats-Batch-Sequence"] = []string{strconv.Itoa(i + 1)}
		if i < len(r.pending)-1 {
			if err := r.bus.conn.PublishMsg(m); err != nil {
				return fault.Wrap(op, err)
			}
			continue
		}
		m.Header["Nats-Batch-Commit"] = []string{"1"}
		reply, err := r.bus.conn.RequestMsgWithContext(ctx, m)
		if err != nil {
			return fault.Wrap(op, err)
		}
		var ack struct {
			Error *struct {
				Description string `json:"description"`
			} `json:"error"`
			Count int `json:"count"`
		}
		if err := json.Unmarshal(reply.Data, &ack); err != nil {
			return fault.Wrap(op, err)
		}
		if ack.Error != nil {
			return fault.Wrap(op, errors.Join(errors.New(ack.Error.Description), r.bus.Health()))
		}
		if ack.Count != len(r.pending) {
			return fault.Wrap(op, fmt.Errorf("%d of %d messages were stored", ack.Count, len(r.pending)))
		}
	}
	r.pending, r.bytes = nil, 0
	return nil
}
