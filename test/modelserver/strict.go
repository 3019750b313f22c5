package modelserver

import (
	"encoding/json"
	"fmt"
	"reflect"
)

// Strictly decodes a request into the vendor's own type for it, and returns an error if that reads anything else than what was
// sent: a field that it does not have, or one of another type. The vendors' types refuse neither by themselves.
func Strictly[T any](sent []byte) (T, error) {
	var back T
	if err := json.Unmarshal(sent, &back); err != nil {
		return back, fmt.Errorf("%w in %s", err, sent)
	}
	again, err := json.Marshal(back)
	if err != nil {
		return back, fmt.Errorf("what the vendor's type read of %s is none of its own: %w", sent, err)
	}
	var x, y any
	if err := json.Unmarshal(sent, &x); err != nil {
		return back, err
	}
	if err := json.Unmarshal(again, &y); err != nil {
		return back, err
	}
	if at, a, b := differs("", x, y); at != "" {
		return back, fmt.Errorf("the vendor's type reads %.300s as %.300s at %s of %s", a, b, at, sent)
	}
	return back, nil
}

// differs returns the first place where two values that were JSON differ, and what is there; "" if they don't.
func differs(at string, x, y any) (where, a, b string) {
	if xs, ok := x.(map[string]any); ok {
		ys, _ := y.(map[string]any)
		for name := range xs {
			if where, a, b = differs(at+"."+name, xs[name], ys[name]); where != "" {
				return where, a, b
			}
		}
		if len(xs) == len(ys) {
			return "", "", ""
		}
	}
	if xs, ok := x.([]any); ok {
		if ys, ok := y.([]any); ok && len(xs) == len(ys) {
			for i := range xs {
				if where, a, b = differs(fmt.Sprintf("%s[%d]", at, i), xs[i], ys[i]); where != "" {
					return where, a, b
				}
			}
			return "", "", ""
		}
	}
	if reflect.DeepEqual(x, y) {
		return "", "", ""
	}
	return at + " ", fmt.Sprint(x), fmt.Sprint(y)
}
