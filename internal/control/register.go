package control

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humachi"
)

var (
	errNone    = errors.New("there is no such computer")
	errSeveral = errors.New("there are several computers")
)

// AtComputer is what every operation on a computer takes. It is exported, as
// its like, because the API's description is made by reflection.
type AtComputer struct {
	Computer string `path:"computer" maxLength:"16" doc:"id, or - when there is only one"`
}

// Paged is what every list takes.
type Paged struct {
	Before uint64 `query:"before" doc:"only what is older than this sequence; 0: from the newest"`
	Limit  int    `query:"limit" minimum:"1" maximum:"500" default:"100"`
}

// out is a JSON answer.
type out[T any] struct{ Body T }

// outPage is a JSON list; More says that an older page is worth asking for.
type outPage[T any] struct {
	More bool `header:"Choir-More" doc:"whether there is more"`
	Body []T
}

func listOf[T any](items []T, more bool) *outPage[T] {
	if items == nil {
		items = []T{}
	}
	return &outPage[T]{Body: items, More: more}
}

// route describes one operation. id is in kebab case: its last path segments
// and verb are what generated clients call it.
func route(method, path, id, summary string) huma.Operation {
	tag := strings.SplitN(id, "-", 2)[0]
	return huma.Operation{
		Method: method, Path: path, OperationID: id, Summary: summary, Tags: []string{tag},
		MaxBodyBytes:    maxBody,
		BodyReadTimeout: -1, // see body
	}
}

// register adds an operation whose errors become problems and which ends
// within limit.
func register[I, O any](hapi huma.API, s *Server, op huma.Operation, limit time.Duration, f func(context.Context, *I) (*O, error)) {
	op.Errors = append(op.Errors, http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound, http.StatusUnprocessableEntity)
	op.Middlewares = append(op.Middlewares, func(ctx huma.Context, next func(huma.Context)) {
		if limit > 0 {
			_, w := humachi.Unwrap(ctx)
			// Fails only on a connection that has gone.
			_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(limit + writeIdle))
			c, cancel := context.WithTimeout(ctx.Context(), limit)
			defer cancel()
			ctx = huma.WithContext(ctx, c)
		}
		next(ctx)
	})
	huma.Register(hapi, op, func(ctx context.Context, in *I) (*O, error) {
		o, err := f(ctx, in)
		if err != nil {
			return nil, problemOf(s.log, op.OperationID, err)
		}
		return o, nil
	})
}

// streamed adds an operation that writes its answer itself.
func streamed[I any](hapi huma.API, s *Server, op huma.Operation, contentType string, f func(w http.ResponseWriter, r *http.Request, in *I) error) {
	if op.Responses == nil {
		op.Responses = map[string]*huma.Response{"200": {
			Description: "A stream.",
			Content:     map[string]*huma.MediaType{contentType: {}},
		}}
	}
	op.Errors = append(op.Errors, http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound, http.StatusUnprocessableEntity)
	huma.Register(hapi, op, func(ctx context.Context, in *I) (*huma.StreamResponse, error) {
		return &huma.StreamResponse{Body: func(hc huma.Context) {
			r, w := humachi.Unwrap(hc)
			tw := &touched{ResponseWriter: w}
			err := f(tw, r, in)
			if err == nil || r.Context().Err() != nil {
				return
			}
			if tw.began {
				// The answer can't be taken back: cut it off, so that what came is not
				// taken for the whole.
				s.log.Debug("stream cut off", "request", op.OperationID, "error", err)
				panic(http.ErrAbortHandler)
			}
			writeProblem(tw, problemOf(s.log, op.OperationID, err))
		}}, nil
	})
}

// touched remembers whether an answer has begun.
type touched struct {
	http.ResponseWriter
	began bool
}

func (t *touched) WriteHeader(status int) { t.began = true; t.ResponseWriter.WriteHeader(status) }
func (t *touched) Write(p []byte) (int, error) {
	t.began = true
	return t.ResponseWriter.Write(p)
}
func (t *touched) Unwrap() http.ResponseWriter { return t.ResponseWriter }
