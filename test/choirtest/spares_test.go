package choirtest_test

import (
	"encoding/json"
	"slices"
	"testing"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/test/choirtest"
)

// TestNotWaiting shows which boxes are taken for ones that wait for a run: none that has had one.
func TestNotWaiting(t *testing.T) {
	opened := func(sequence uint64, box string, kind contract.BoxKind) contract.Event {
		data, err := json.Marshal(contract.BoxOpened{Box: box, Kind: kind})
		if err != nil {
			t.Fatal(err)
		}
		return contract.Event{Sequence: sequence, Type: "box.opened", Data: data}
	}
	events := []contract.Event{
		opened(1, "spare-d-used", contract.BoxDirector),
		opened(2, "spare-a-unused", contract.BoxAssociate),
		{Sequence: 3, Type: "turn.recorded", Source: contract.Source(contract.NewCID(), contract.KindDirector)},
		opened(4, "spare-d-new", contract.BoxDirector),
		opened(5, "d-own", contract.BoxDirector),
	}
	for _, c := range []struct{ boxes, want []string }{
		{nil, nil},
		{[]string{"spare-a-unused", "spare-d-new"}, nil},
		{[]string{"spare-d-used"}, []string{"spare-d-used"}},
		{[]string{"d-own"}, []string{"d-own"}},
		{[]string{"spare-d-later", "spare-d-new"}, []string{"spare-d-new"}},
	} {
		got, err := choirtest.NotWaiting(events, c.boxes)
		if err != nil || !slices.Equal(got, c.want) {
			t.Errorf("of %v %v wait for nothing (%v), want %v", c.boxes, got, err, c.want)
		}
	}
}
