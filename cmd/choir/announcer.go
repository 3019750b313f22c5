package main

import (
	"encoding/json"
	"fmt"
	"os"
	"sync"

	"choir.dev/choiros/internal/cli"
	"choir.dev/choiros/internal/cli/terminal"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/view"
)

// announcer writes what `choir up` says on standard output: that it is up and where, or why
// not, and later which of its computers have trouble.
type announcer struct {
	json   bool
	open   func(upLine) // shows the link to a person
	log    *logKeeper   // keeps what is logged, once there is a data directory
	spoken *announcement
}

// announcement is what has been said so far.
type announcement struct {
	mu    sync.Mutex
	up    string            // the console's URL, once that was said
	held  []func()          // what is to be said after that
	about map[string]string // by computer: the trouble that was reported last
}

func newAnnouncer(json bool, log *logKeeper, open func(upLine)) announcer {
	return announcer{json: json, open: open, log: log, spoken: &announcement{about: map[string]string{}}}
}

// ready says, once, that everything is up.
func (v announcer) ready(line upLine) error {
	v.spoken.mu.Lock()
	defer v.spoken.mu.Unlock()
	if v.spoken.up != "" {
		return nil
	}
	v.spoken.up = line.URL
	if v.json {
		return json.NewEncoder(os.Stdout).Encode(line)
	}
	what := "Open this link once to make the computer yours"
	if line.Claimed {
		what = "Sign in with this link, which works once"
	}
	fmt.Printf("ChoirOS %s is up. %s:\n\n  %s\n\nStop it with Ctrl-C.\n", version, what, line.ClaimURL)
	for _, said := range v.spoken.held {
		said()
	}
	v.spoken.held = nil
	v.open(line)
	return nil
}

// stopped says that what is stored can't be opened, and at which address to read about it.
func (v announcer) stopped(line upLine, why error) error {
	v.again(why)
	if v.json {
		return json.NewEncoder(os.Stdout).Encode(line)
	}
	fmt.Printf("ChoirOS %s can't open what it has stored, and says so at\n\n  %s\n\n%s\nchoir doctor and choir recover can be run meanwhile; it goes on by itself once that is mended. Stop it with Ctrl-C.\n", version, line.URL, safeWords)
	return nil
}

// again logs that another try to open it failed, and why.
func (v announcer) again(why error) {
	fmt.Fprintf(os.Stderr, "choir: %s\n", cli.Sentence(why))
}

// computer says in one line that a computer does not wake, why, and where to look; err is
// nil when it is awake. It does not repeat itself.
func (v announcer) computer(cid, name string, state view.ComputerState, err error) {
	v.spoken.mu.Lock()
	defer v.spoken.mu.Unlock()
	text := ""
	if err != nil {
		text = fault.Text(err)
	}
	if v.json || v.spoken.about[cid] == text {
		return
	}
	v.spoken.about[cid] = text
	said := func() {
		switch name, text := terminal.OneLine(name, 60), terminal.OneLine(text, 300); {
		case err == nil:
			fmt.Printf("%s is awake.\n", name)
		case state == view.StateDamaged:
			fmt.Printf("%s is damaged: %s. What is safe and what to do stands at %s\n", name, text, v.spoken.up)
		default:
			fmt.Printf("%s does not wake: %s. What can be done stands at %s\n", name, text, v.spoken.up)
		}
	}
	if v.spoken.up == "" {
		v.spoken.held = append(v.spoken.held, said)
		return
	}
	said()
}
