package schema_test

import (
	"encoding/json"
	"testing"

	"choir.dev/choiros/internal/tool/schema"
)

// TestAPropertyThatIsNullIsRefused: schemas also come from programs in boxes and from servers.
func TestAPropertyThatIsNullIsRefused(t *testing.T) {
	for _, s := range []string{
		`{"type":"object","properties":{"a":null}}`,
		`{"type":"object","properties":{"a":{"type":"object","properties":{"b":null}}}}`,
		`{"type":"array","items":{"type":"object","properties":{"b":null}}}`,
	} {
		if _, err := schema.Compile(json.RawMessage(s)); err == nil {
			t.Errorf("%s is taken", s)
		}
	}
}
