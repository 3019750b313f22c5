package control

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humachi"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/control/httpio"
	"choir.dev/choiros/internal/control/problem"
	"choir.dev/choiros/internal/rpc"
)

var (
	errSeveral       = errors.New("there are several computers")
	errOtherComputer = errors.New("this session is for another computer")
)

// route describes one operation. id is in kebab case: the last segments of its path and the verb.
// Generated clients name the operation by it.
func route(method, path, id, summary string) huma.Operation {
	tag := strings.SplitN(id, "-", 2)[0]
	return huma.Operation{
		Method: method, Path: path, OperationID: id, Summary: summary, Tags: []string{tag},
		MaxBodyBytes:    rpc.MaxBody,
		BodyReadTimeout: -1, // see body
	}
}

// limitedTo makes an operation end within limit, and documents the errors that it may return.
func limitedTo(op huma.Operation, limit time.Duration) huma.Operation {
	op.Errors = append(op.Errors, http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound, http.StatusUnprocessableEntity)
	op.Middlewares = append(op.Middlewares, func(ctx huma.Context, next func(huma.Context)) {
		_, w := humachi.Unwrap(ctx)
		// Fails only on a connection that has gone.
		_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(limit + httpio.WriteIdle))
		c, cancel := context.WithTimeout(ctx.Context(), limit)
		defer cancel()
		next(huma.WithContext(ctx, c))
	})
	return op
}

// register adds an operation of the control plane itself, which ends within limit; its errors become
// problem documents.
func register[I, O any](hapi huma.API, s *Server, op huma.Operation, limit time.Duration, f func(context.Context, *I) (*O, error)) {
	op = limitedTo(op, limit)
	huma.Register(hapi, op, func(ctx context.Context, in *I) (*O, error) {
		o, err := f(ctx, in)
		if err != nil {
			return nil, problem.Of(s.log, op.OperationID, err)
		}
		return o, nil
	})
}

// streamed adds a declared method whose answer is a stream: f writes it itself, for the computer that the
// request named, until the caller loses the right to it. content is the media type of the request's body,
// or empty if there is none; answer is that of the response.
func streamed[I rpc.Asked](hapi huma.API, s *Server, m *rpc.Method[I, rpc.None], content, answer string, f func(w http.ResponseWriter, r *http.Request, cid contract.CID, in *I) error) {
	d := m.About()
	op := route(d.HTTP.Verb, d.Address(), d.HTTP.ID, d.Summary)
	op.Description = d.Detail
	if content != "" {
		op.RequestBody = &huma.RequestBody{Required: true, Content: map[string]*huma.MediaType{content: {}}}
	}
	op.Responses = map[string]*huma.Response{"200": {Description: "A stream.", Content: map[string]*huma.MediaType{answer: {}}}}
	op.Errors = append(op.Errors, http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound, http.StatusUnprocessableEntity)
	huma.Register(hapi, op, func(ctx context.Context, in *I) (*huma.StreamResponse, error) {
		return &huma.StreamResponse{Body: func(hc huma.Context) {
			r, w := humachi.Unwrap(hc)
			tw := &httpio.Answer{ResponseWriter: w}
			err := m.Valid(*in)
			if err == nil {
				err = s.stream(r, d, (*in).Named(), func(r *http.Request, cid contract.CID) error {
					if r.Method == http.MethodHead && d.Name != rpc.FilesGet.Name {
						tw.Header().Set("Content-Type", answer) // the length of a stream is not known
						return nil
					}
					return f(tw, r, cid, in)
				})
			}
			if err == nil || r.Context().Err() != nil {
				return
			}
			if tw.Started {
				// Part of the answer has been sent. The connection is cut so that the client does not
				// take it for the whole.
				s.log.Debug("stream cut off", "request", op.OperationID, "error", err)
				panic(http.ErrAbortHandler)
			}
			problem.Write(tw, problem.Of(s.log, op.OperationID, err))
		}}, nil
	})
}

// stream runs f for a method that is asked of a computer, with a context that ends when the caller loses
// the right to it.
func (s *Server) stream(r *http.Request, d rpc.Declared, computer string, f func(*http.Request, contract.CID) error) error {
	var cid contract.CID
	var who contract.Actor
	ctx, release, err := s.hold(r.Context(), holderOf(callerOf(r.Context())), func(ctx context.Context) (_ contract.CID, err error) {
		if err = s.present(ctx, callerOf(ctx)); err == nil {
			cid, who, err = s.reach(ctx, d, computer)
		}
		return cid, err
	})
	if err != nil {
		return err
	}
	defer release()
	return f(r.WithContext(context.WithValue(ctx, actorKey{}, who)), cid)
}
