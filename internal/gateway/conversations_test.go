package gateway_test

import (
	"testing"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/test/modelserver"
)

// TestARunSaysHowMuchOfItsRequestsWasRepeated: over a task of sixty turns whose history only grows it is more than nine tenths, of
// a first request nothing, and of one whose beginning was changed nothing behind that.
func TestARunSaysHowMuchOfItsRequestsWasRepeated(t *testing.T) {
	each(t, func(t *testing.T, wire modelserver.Wire) {
		g, _, m := play(t, wire, nil, modelserver.Turn{Text: "I go on with it.", Repeat: true})
		sc := scope()
		req := say("Begin.")
		for range 60 {
			turn, err := g.Turn(t.Context(), sc, req, nil)
			if err != nil {
				t.Fatal(err)
			}
			req.Messages = append(req.Messages, turn.Message, contract.Message{Role: contract.MessageUser, Parts: []contract.Part{{Text: "Go on."}}})
		}
		var sum contract.Usage
		for _, u := range m.taken() {
			sum = sum.Add(u.Usage)
		}
		if first := m.taken()[0].Usage.TokensRepeated; first != 0 || sum.TokensRepeated*10 < sum.TokensIn*9 || sum.TokensRepeated >= sum.TokensIn {
			t.Errorf("%d tokens of the first request, and %d of %d", first, sum.TokensRepeated, sum.TokensIn)
		}
		other := sc
		other.Task = contract.NewID()
		req.Messages[0].Parts[0].Text = "Begin anew."
		for i, s := range []struct {
			scope func() error
			most  int64 // of a hundred
		}{{func() error { _, err := g.Turn(t.Context(), sc, req, nil); return err }, 20}, {func() error { _, err := g.Turn(t.Context(), other, req, nil); return err }, 0}} {
			if err := s.scope(); err != nil {
				t.Fatal(err)
			}
			if u := m.taken()[60+i].Usage; u.TokensRepeated*100 > u.TokensIn*s.most {
				t.Errorf("%d of %d tokens", u.TokensRepeated, u.TokensIn)
			}
		}
	})
}
