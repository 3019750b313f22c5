package supervise

import (
	"errors"
	"fmt"
	"runtime/debug"
)

// PanicError is a panic as an error. Its text does not contain the stack, which is for the
// program's log and not for people.
type PanicError struct {
	Value any
	Stack []byte
}

func (e *PanicError) Error() string { return fmt.Sprintf("panic: %v", e.Value) }

// Safely runs f and turns a panic into an error.
func Safely(f func() error) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = &PanicError{v, debug.Stack()}
		}
	}()
	return f()
}

// Stack returns the stack of the panic in err; "" when there was none.
func Stack(err error) string {
	var p *PanicError
	if !errors.As(err, &p) {
		return ""
	}
	return string(p.Stack)
}
