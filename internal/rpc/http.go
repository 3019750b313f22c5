package rpc

import (
	"context"

	"github.com/danielgtaylor/huma/v2"
)

// HTTPBinding serves methods over HTTP: package control implements it. Mount adds a
// method's route to its API.
type HTTPBinding interface {
	API() huma.API
	// Operation describes a method's route and how it is limited.
	Operation(Declared) huma.Operation
	// Reach returns who asks and the table that answers, or why they may not ask.
	Reach(ctx context.Context, d Declared, computer string) (Table, Caller, error)
	// Refuse turns an error into an HTTP error. conditional says that the request had
	// conditions.
	Refuse(d Declared, conditional bool, err error) error
}

type mount[In, Out any] func(HTTPBinding, Declared, func(context.Context, In) (Out, error))

// Mount adds the method's route. One that is not over HTTP has none.
func (m *Method[In, Out]) Mount(binding HTTPBinding) {
	if m.HTTP.ID == "" || m.mount == nil {
		return
	}
	m.mount(binding, m.Declared, func(ctx context.Context, in In) (out Out, err error) {
		if err = validate(in); err == nil {
			var t Table
			var who Caller
			if t, who, err = binding.Reach(ctx, m.Declared, in.Named()); err == nil {
				out, err = m.Ask(ctx, t, who, in)
			}
		}
		if err != nil {
			c, ok := any(in).(interface{ Conditional() bool })
			return out, binding.Refuse(m.Declared, ok && c.Conditional(), err)
		}
		return out, nil
	})
}

// jsonAnswer is a JSON answer.
type jsonAnswer[T any] struct{ Body T }

// page is a JSON list; More says that there is another page.
type page[T any] struct {
	More bool `header:"Choir-More" doc:"whether there is more"`
	Body []T
}

func mountOne[In, Out any](binding HTTPBinding, d Declared, f func(context.Context, In) (Out, error)) {
	huma.Register(binding.API(), binding.Operation(d), func(ctx context.Context, in *In) (*jsonAnswer[Out], error) {
		out, err := f(ctx, *in)
		if err != nil {
			return nil, err
		}
		return &jsonAnswer[Out]{out}, nil
	})
}

func mountList[In, T any](binding HTTPBinding, d Declared, f func(context.Context, In) (List[T], error)) {
	huma.Register(binding.API(), binding.Operation(d), func(ctx context.Context, in *In) (*page[T], error) {
		l, err := f(ctx, *in)
		if err != nil {
			return nil, err
		}
		if l.Items == nil {
			l.Items = []T{}
		}
		return &page[T]{More: l.More, Body: l.Items}, nil
	})
}

func mountNone[In any](binding HTTPBinding, d Declared, f func(context.Context, In) (None, error)) {
	huma.Register(binding.API(), binding.Operation(d), func(ctx context.Context, in *In) (*struct{}, error) {
		_, err := f(ctx, *in)
		return nil, err
	})
}

// Valid checks a request to a method that is bound by hand.
func (m *Method[In, Out]) Valid(in In) error { return validate(in) }
