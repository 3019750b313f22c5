package wire_test

import (
	"encoding/json"
	"testing"

	"pgregory.net/rapid"

	"choir.dev/choiros/internal/workspace/keeper/wire"
)

func TestPathsComeBack(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		name := string(rapid.SliceOf(rapid.ByteRange(1, 255)).Draw(rt, "name"))
		raw, err := json.Marshal(wire.Path(name))
		if err != nil {
			rt.Fatal(err)
		}
		var p wire.Path
		if err := json.Unmarshal(raw, &p); err != nil || string(p) != name {
			rt.Errorf("%q came back from JSON as %q, %v", name, string(p), err)
		}
	})
}
