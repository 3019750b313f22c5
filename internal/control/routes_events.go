package control

import (
	"context"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/control/httpio"
	"choir.dev/choiros/internal/rpc"
	"choir.dev/choiros/internal/view"
)

// aliveEvery is how often a stream without events sends an empty line to show that it is still open.
// Readers of NDJSON skip such lines.
const aliveEvery = 15 * time.Second

// readPage is how many events are read at once.
const readPage = 500

func (s *Server) routeEvents(hapi huma.API) {
	streamed(hapi, s, rpc.EventsRead, "", "application/x-ndjson", s.streamEvents)
}

func (s *Server) streamEvents(w http.ResponseWriter, r *http.Request, cid contract.CID, in *rpc.EventsRequest) error {
	// Reading past events does not wake a computer; following new ones does.
	var log History
	var err error
	if !in.Follow {
		log, err = s.options.Computers.History(r.Context(), cid)
	}
	var c Computer
	if in.Follow {
		c, err = s.options.Computers.Get(r.Context(), cid)
		log = c
	}
	if err != nil {
		return err
	}
	ctx := r.Context()
	w.Header().Set("Content-Type", "application/x-ndjson")
	lines := httpio.NewLines(w)
	sent := 0
	q := view.EventQuery{After: in.After, Types: in.Type, Run: in.Run, Task: in.Task, Subject: in.Subject}
	put := func(e contract.Event) (bool, error) {
		b, err := contract.MarshalEvent(e)
		if err != nil {
			return false, err
		}
		sent++
		return in.Limit > 0 && sent >= in.Limit, lines.Write(b)
	}
	for {
		q.Limit = readPage
		if in.Limit > 0 {
			q.Limit = min(q.Limit, in.Limit-sent)
		}
		page, err := log.Events(ctx, q)
		if err != nil {
			return err
		}
		for _, e := range page.Events {
			if full, err := put(e); err != nil || full {
				return join(err, lines.Flush())
			}
		}
		if q.After = page.Next; !page.More {
			break
		}
		if c == nil { // a long log is read from an awake computer, so that it is not opened again for each page
			if c, err = s.options.Computers.Get(ctx, cid); err != nil {
				return err
			}
			log = c
		}
	}
	if err := lines.Flush(); err != nil || !in.Follow {
		return err
	}
	return s.followEvents(ctx, c, q, lines, put)
}

func (s *Server) followEvents(ctx context.Context, c Computer, q view.EventQuery, lines *httpio.Lines, put func(contract.Event) (bool, error)) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	events := make(chan contract.Event)
	failed := make(chan error, 1)
	go func() {
		defer close(events)
		for e, err := range c.Follow(ctx, q.After) {
			if err != nil {
				failed <- err
				return
			}
			if !q.Selects(e) {
				continue
			}
			select {
			case events <- e:
			case <-ctx.Done():
				return
			}
		}
	}()
	defer func() {
		cancel()
		for range events { // until the goroutine has ended
		}
	}()
	alive := time.NewTicker(aliveEvery)
	defer alive.Stop()
	for {
		select {
		case e, ok := <-events:
			if !ok {
				if ctx.Err() != nil {
					return nil
				}
				select {
				case err := <-failed:
					return err
				default:
					return nil
				}
			}
			full, err := put(e)
			if err = join(err, lines.Flush()); err != nil || full {
				return err
			}
		case <-alive.C:
			if err := join(lines.Write(nil), lines.Flush()); err != nil {
				return err
			}
		}
	}
}

func join(a, b error) error {
	if a != nil {
		return a
	}
	return b
}
