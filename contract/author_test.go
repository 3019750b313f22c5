package contract_test

import (
	"encoding/json"
	"os"
	"reflect"
	"testing"

	"choir.dev/choiros/contract"
)

// The desktop computes the author too, and its test has the same cases.
func TestCheckpointAuthor(t *testing.T) {
	b, err := os.ReadFile("testdata/checkpoint-authors.json")
	if err != nil {
		t.Fatal(err)
	}
	var cases []struct {
		Kind   contract.CheckpointKind `json:"kind"`
		Task   string                  `json:"task"`
		By     contract.ActorKind      `json:"by"`
		Author contract.ActorKind      `json:"author"`
	}
	if err := json.Unmarshal(b, &cases); err != nil {
		t.Fatal(err)
	}
	kinds := map[contract.CheckpointKind]bool{}
	for _, c := range cases {
		kinds[c.Kind] = true
		if got := contract.CheckpointAuthor(c.Kind, c.Task, c.By); got != c.Author {
			t.Errorf("%s of task %q by a %s: %s; want %s", c.Kind, c.Task, c.By, got, c.Author)
		}
	}
	for _, k := range contract.EnumValues(reflect.TypeFor[contract.CheckpointKind]()) {
		if !kinds[contract.CheckpointKind(k)] {
			t.Errorf("no case is about kind %s", k)
		}
	}
}
