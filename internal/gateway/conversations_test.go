package gateway_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/gateway"
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

// TestWhatIsSentIsTheSameAfterAnyOther: what is kept of a loop's request never changes how a later one is sent, on any wire: it is
// sent as by a loop of which nothing is kept.
func TestWhatIsSentIsTheSameAfterAnyOther(t *testing.T) {
	each(t, func(t *testing.T, wire modelserver.Wire) {
		g, server, _ := play(t, wire, nil, modelserver.Turn{Text: "Yes.", Repeat: true})
		word := rapid.SampledFrom([]string{"a", "b", "two\nlines", `"<&>"`})
		rapid.Check(t, func(r *rapid.T) {
			sc := scope()
			alone := sc
			alone.Aside = true
			req := say(word.Draw(r, "first"))
			for range rapid.IntRange(1, 8).Draw(r, "requests") {
				switch rapid.SampledFrom([]string{"grows", "grows", "grows", "changes", "shrinks", "other system", "other tools", "fewer tools", "no tools", "same"}).Draw(r, "what") {
				case "grows":
					id := word.Draw(r, "id")
					req.Messages = append(req.Messages,
						contract.Message{Role: contract.MessageAssistant, Parts: []contract.Part{{Text: word.Draw(r, "says")}, {Call: &contract.ToolCall{ID: id, Name: "read", Args: json.RawMessage(`{"path":"a"}`)}}}},
						contract.Message{Role: contract.MessageUser, Parts: []contract.Part{{Return: &contract.ToolReturn{ID: id, Content: word.Draw(r, "returns"), IsError: rapid.Bool().Draw(r, "error")}}}})
				case "changes":
					req.Messages[rapid.IntRange(0, (len(req.Messages)-1)/2).Draw(r, "at")*2] = contract.Message{Role: contract.MessageUser, Parts: []contract.Part{{Text: word.Draw(r, "instead")}}}
				case "shrinks":
					req.Messages = req.Messages[:rapid.IntRange(0, (len(req.Messages)-1)/2).Draw(r, "to")*2+1]
				case "other system":
					req.System += word.Draw(r, "system")
				case "other tools":
					req.Tools = append(slices.Clone(req.Tools), contract.ToolSpec{Name: fmt.Sprintf("t%d", len(req.Tools)), Description: word.Draw(r, "description"), Schema: json.RawMessage(`{"type":"object"}`)})
				case "fewer tools":
					req.Tools = req.Tools[:min(1, len(req.Tools))]
				case "no tools":
					req.Tools = nil
				}
				before := len(server.Requests())
				for _, s := range []gateway.Scope{sc, alone} {
					if _, err := g.Turn(t.Context(), s, req, nil); err != nil {
						r.Fatal(err)
					}
				}
				sent := server.Requests()[before:]
				if len(sent) != 2 || !bytes.Equal(sent[0].Body, sent[1].Body) {
					r.Fatalf("%d were sent\n%s\nby itself\n%s", len(sent), sent[0].Body, sent[1].Body)
				}
			}
		})
	})
}
