package fleet

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"choir.dev/choiros/internal/computer"
	"choir.dev/choiros/internal/computer/boxes"
	"choir.dev/choiros/internal/fault"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/sandbox"
	"choir.dev/choiros/internal/view"
)

// registriesTTL is how long the answers of the host's package managers are cached.
const registriesTTL = 10 * time.Minute

func hostPort(d contract.EgressDecided) string {
	return net.JoinHostPort(d.Host, strconv.Itoa(d.Port))
}

// Secrets implements control.System.
func (fl *Fleet) Secrets(ctx context.Context) ([]view.Secret, error) {
	names, err := fl.Vault.List(ctx)
	if err != nil {
		return nil, err
	}
	out := make([]view.Secret, 0, len(names))
	for _, name := range names {
		out = append(out, view.Secret{ID: name, Source: "vault"})
	}
	return out, nil
}

// SetSecret implements control.System. That it was set is in the log of every
// computer; its value is in none.
func (fl *Fleet) SetSecret(ctx context.Context, by contract.Actor, name, value string) error {
	if err := fl.Vault.Set(ctx, name, value); err != nil {
		return err
	}
	return fl.tell(ctx, by, "secret.set", contract.SecretSet{Name: name})
}

// RemoveSecret implements control.System.
func (fl *Fleet) RemoveSecret(ctx context.Context, by contract.Actor, name string) error {
	if err := fl.Vault.Remove(ctx, name); err != nil {
		return err
	}
	return fl.tell(ctx, by, "secret.removed", contract.SecretRemoved{Name: name})
}

// tell appends the same event to every computer's log. A sleeping computer is not woken for
// it: only its log is opened.
func (fl *Fleet) tell(ctx context.Context, by contract.Actor, eventType string, data contract.Payload) error {
	fl.mu.Lock()
	places := make([]*place, 0, len(fl.order))
	asleep := map[*place]bool{}
	for _, cid := range fl.order {
		p := fl.find(cid)
		if p == nil {
			continue
		}
		places = append(places, p)
		asleep[p] = p.state == view.StateAsleep && p.err == nil
	}
	fl.mu.Unlock()
	write := func(ctx context.Context, c *computer.Computer) error {
		_, err := c.Log().Append(ctx, contract.Draft{Actor: by, Type: eventType, Data: data})
		return err
	}
	for _, p := range places {
		if asleep[p] {
			if err := (past{fl, p}).read(ctx, write); err != nil {
				return err
			}
			continue
		}
		c, err := fl.get(p.cid)
		if fault.Is(err, fault.Unavailable) {
			continue // it does not wake, so its log can't be written
		}
		if err == nil {
			err = write(ctx, c)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// Models implements control.System.
func (fl *Fleet) Models(ctx context.Context) ([]view.Model, error) {
	var out []view.Model
	for _, m := range fl.machine.Gateway.Models(ctx) {
		model := view.Model{ID: m.Name, Provider: m.Provider, Aliases: m.Aliases, Default: m.Default, Available: m.Configured, Key: m.Key, PriceIn: m.PriceIn, PriceOut: m.PriceOut}
		if m.Provider == "rehearsal" {
			model.Note = "plays documented plans; understands nothing"
		}
		if len(m.Roles) > 0 {
			model.Note = "for the " + strings.Join(m.Roles, " and ")
		}
		out = append(out, model)
	}
	return out, nil
}

// TestModel implements control.System.
func (fl *Fleet) TestModel(ctx context.Context, model string) (view.ModelTest, error) {
	if err := fl.machine.Reserve.Check("computer.TestModel"); err != nil {
		return view.ModelTest{}, err // what it consumes could not be recorded
	}
	r := fl.machine.Gateway.Test(ctx, model)
	out := view.ModelTest{ID: r.Model, OK: r.OK, DurationMS: r.LatencyMS, Usage: r.Usage, Error: r.Error}
	if !r.OK && r.Code != "budget" { // a budget's error says itself how to raise it
		out.Hint = "Check the key with choir secrets ls and the base URL in the configuration."
	}
	return out, nil
}

// Doctor implements control.System.
func (fl *Fleet) Doctor(ctx context.Context) ([]view.Finding, error) {
	out := []view.Finding{{ID: "isolation", Status: "ok", Detail: computer.Isolation(fl.Driver.Name())}}
	for _, f := range fl.Driver.Doctor(ctx) {
		status := "warn"
		if f.Severity == sandbox.Fatal {
			status = "fail"
		}
		out = append(out, view.Finding{ID: f.ID, Status: status, Detail: f.Text, Hint: f.Hint})
	}
	fl.mu.Lock()
	var order []contract.CID
	for _, cid := range fl.order {
		if p := fl.find(cid); p != nil && (p.state != view.StateAsleep || p.err != nil) {
			order = append(order, cid) // sleeping ones are examined when they wake
		}
	}
	fl.mu.Unlock()
	for _, cid := range order {
		c, err := fl.get(cid)
		if err != nil {
			out = append(out, view.Finding{ID: "computer " + string(cid), Status: "fail", Detail: fault.Text(err), Hint: fault.HintOf(err)})
			continue
		}
		for _, text := range c.DamageNotes() {
			out = append(out, view.Finding{ID: "computer " + string(cid), Status: "fail", Detail: text})
		}
		if why := c.Unwatched(); why != "" {
			out = append(out, view.Finding{ID: "computer " + string(cid), Status: "warn", Detail: "After each command all of its files are looked at, which is slow where they are many: " + why + ".",
				Hint: "Nothing is lost. A quarter of fs.inotify.max_user_watches is a computer's, and half all computers', two for most directories: sudo sysctl -w fs.inotify.max_user_watches=524288"})
		}
	}
	free, err := fl.Dir.Free()
	if err != nil {
		return nil, err
	}
	n, bytes, err := boxes.Shared(os.DirFS(filepath.Join(fl.Dir.Path(), "cache")))
	if err != nil {
		return nil, err
	}
	if n > 0 {
		out = append(out, view.Finding{ID: "dependencies", Status: "ok",
			Detail: fmt.Sprintf("%d installed for the checks of all computers, %d MB of at most %d", n, bytes>>20, fl.machine.Boxes.Storage.DependenciesMB)})
	}
	space, err := Space(ctx, fl.Dir.Path(), free)
	if err != nil {
		return nil, err
	}
	used, err := uses(ctx, fl.Dir.Path())
	if err != nil {
		return nil, err
	}
	reserve := view.Finding{ID: "reserve", Status: "ok", Detail: fl.machine.Reserve.String()}
	if fl.machine.Reserve.Check("") != nil {
		reserve.Status, reserve.Hint = "warn", fault.FreeSpace
	}
	return append(append(out, space, reserve), append(used, fl.checkAccounts(ctx))...), nil
}
