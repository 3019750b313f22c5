package choirtest

import (
	"encoding/json"
	"strings"

	"choir.dev/choiros/contract"
)

// NotWaiting returns those of some boxes of a computer that wait for no run. One box of each of our loops may
// wait: it was opened for nobody, as its id says, and no loop of its kind has recorded a turn since, as the
// computer's events tell.
func NotWaiting(events []contract.Event, boxes []string) (others []string, err error) {
	opened, spoke := map[string]uint64{}, map[string]uint64{}
	for _, e := range events {
		switch e.Type {
		case "box.opened":
			var b contract.BoxOpened
			if err := json.Unmarshal(e.Data, &b); err != nil {
				return nil, err
			}
			opened[b.Box] = e.Sequence
		case "turn.recorded":
			spoke[map[contract.ActorKind]string{contract.KindDirector: "d", contract.KindAssociate: "a"}[e.Kind()]] = e.Sequence
		}
	}
	waits := map[string]bool{}
	for _, box := range boxes {
		loop, spare := strings.CutPrefix(box, "spare-")
		loop, _, _ = strings.Cut(loop, "-")
		at, known := opened[box] // or it was opened since the events were read
		if !spare || waits[loop] || known && at < spoke[loop] {
			others = append(others, box)
			continue
		}
		waits[loop] = true
	}
	return others, nil
}
