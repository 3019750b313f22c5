package dispatch

import "reflect"

// Hanging returns how many contexts hang on the dispatcher's.
func (d *Dispatcher) Hanging() int {
	return reflect.ValueOf(d.ctx).Elem().FieldByName("children").Len()
}
