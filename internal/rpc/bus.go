package rpc

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"

	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/view"
)

// Answer implements Any.
func (m *Method[In, Out]) Answer(ctx context.Context, t Table, who Caller, data []byte) ([]byte, error) {
	if err := m.Permits(who.Actor); err != nil {
		return nil, err
	}
	var in In
	if len(data) == 0 {
		data = []byte("{}")
	}
	if err := m.flat().decode(data, &in); err != nil {
		return nil, err
	}
	if err := validate(in); err != nil {
		return nil, err
	}
	out, err := m.Ask(ctx, t, who, in)
	if err != nil {
		return nil, err
	}
	b, err := m.answer(m.Declared, out)
	if err == nil && len(b) > MaxBusAnswer {
		err = fault.New("", fault.Exhausted, "Ask for less at once.", fmt.Errorf("the answer would be %d bytes long; at most %d are allowed", len(b), MaxBusAnswer))
	}
	return b, err
}

// fitting is implemented by answers that can shorten themselves to fit their message.
type fitting[T any] interface{ Fit(max int) (T, error) }

func fit[T any](v T) (T, error) {
	if f, ok := any(v).(fitting[T]); ok {
		return f.Fit(MaxBusAnswer)
	}
	return v, nil
}

func encode[T any](_ Declared, v T) ([]byte, error) {
	v, err := fit(v)
	if err != nil {
		return nil, err
	}
	return json.Marshal(view.ByName[T]{Of: v})
}

// encodeList encodes as many entries as fit.
func encodeList[T any](d Declared, l List[T]) ([]byte, error) {
	named := make([]view.ByName[T], 0, len(l.Items))
	for _, item := range l.Items {
		item, err := fit(item)
		if err != nil {
			return nil, err
		}
		named = append(named, view.ByName[T]{Of: item})
	}
	named, cut, err := view.Fit(named, MaxBusAnswer)
	if err != nil {
		return nil, err
	}
	items, err := json.Marshal(named)
	if err != nil {
		return nil, err
	}
	return fmt.Appendf(nil, `{%q:%s,"more":%t}`, d.Noun, items, l.More || cut), nil
}

var services = sync.OnceValue(func() map[string]Any {
	out := map[string]Any{}
	for _, m := range all {
		if d := m.About(); d.Callers&Desktop != 0 && d.Kind == Call {
			out[d.Name] = m
		}
	}
	return out
})

// ByService finds a method by its name on the bus.
func ByService(name string) (Any, bool) {
	m, ok := services()[name]
	return m, ok
}
