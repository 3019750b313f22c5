package computer

import (
	"context"
	"errors"
	"slices"
	"testing"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/rpc"
	"choir.dev/choiros/internal/supervise"
	"choir.dev/choiros/internal/view"
)

// TestEveryMethodIsAnswered shows that an awake computer answers every declared method.
func TestEveryMethodIsAnswered(t *testing.T) {
	if missing := (&Computer{}).bindMethods().Unbound(func(d rpc.Declared) bool { return !d.Host }); len(missing) > 0 {
		t.Errorf("nothing answers %v", missing)
	}
}

// TestADesktopSeesItsComputersParts shows that a computer's page is told how each part of it is, but not of
// processes, which are the machine's.
func TestADesktopSeesItsComputersParts(t *testing.T) {
	d := open(t)
	if err := errors.Join(d.note(t.Context(), "computer.created", contract.ComputerCreated{Name: "One", Driver: "local"}), d.state.CaughtUp(t.Context(), d.log)); err != nil {
		t.Fatal(err)
	}
	d.parts.Add(supervise.Part{Name: "a part", PID: func() int { return 4711 }, Run: func(ctx context.Context) error {
		<-ctx.Done()
		return nil
	}})
	own, err := d.Health(t.Context())
	if err != nil || len(own.Parts) == 0 || !slices.ContainsFunc(own.Parts, func(p view.Part) bool { return p.PID == 4711 }) {
		t.Fatalf("%+v, %v", own, err)
	}
	shown, err := rpc.ComputerHealth.Ask(t.Context(), d.bindMethods(), rpc.Caller{}, rpc.Of{})
	if err != nil || shown.ID != d.cid || len(shown.Parts) != len(own.Parts) {
		t.Fatalf("%+v, %v", shown, err)
	}
	for _, p := range shown.Parts {
		if p.PID != 0 || p.State == "" || p.Since.IsZero() {
			t.Errorf("of a part is said %+v", p)
		}
	}
}
