package service

import (
	"context"
	"slices"
	"strings"
	"sync"

	"github.com/nats-io/nats.go"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/defence"
	"choir.dev/choiros/internal/rpc"
)

const (
	maxFollowed  = 16   // runs that one session follows; following another ends the oldest
	maxFollowers = 256  // sessions that follow one run
	wordsWaiting = 1024 // pieces of text in the queue; what does not fit is lost, for such text is not in the log
)

// following records which sessions receive the text of which runs while a model produces
// it. Only sessions that asked for a run's text receive it, not all members of the
// computer.
type following struct {
	mu   sync.Mutex
	runs map[contract.CID]map[string][]string // by computer and run, the sessions
	by   map[string][]string                  // by session, its runs, oldest first
}

func (f *following) init() {
	f.runs, f.by = map[contract.CID]map[string][]string{}, map[string][]string{}
}

// follow makes a session receive a run's text.
func (f *following) follow(cid contract.CID, principal, run string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if slices.Contains(f.by[principal], run) || len(f.runs[cid][run]) >= maxFollowers {
		return
	}
	if mine := f.by[principal]; len(mine) >= maxFollowed {
		f.drop(cid, principal, mine[0])
	}
	if f.runs[cid] == nil {
		f.runs[cid] = map[string][]string{}
	}
	f.runs[cid][run] = append(f.runs[cid][run], principal)
	f.by[principal] = append(f.by[principal], run)
}

// drop ends the following of one run. The caller holds f.mu.
func (f *following) drop(cid contract.CID, principal, run string) {
	without := func(list []string, s string) []string {
		return slices.DeleteFunc(slices.Clone(list), func(o string) bool { return o == s })
	}
	if f.runs[cid][run] = without(f.runs[cid][run], principal); len(f.runs[cid][run]) == 0 {
		delete(f.runs[cid], run)
	}
	if len(f.runs[cid]) == 0 {
		delete(f.runs, cid)
	}
	if f.by[principal] = without(f.by[principal], run); len(f.by[principal]) == 0 {
		delete(f.by, principal)
	}
}

// forget ends everything that a session follows.
func (f *following) forget(cid contract.CID, principal string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, run := range slices.Clone(f.by[principal]) {
		f.drop(cid, principal, run)
	}
}

// followers returns the sessions that follow a run.
func (f *following) followers(cid contract.CID, run string) []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	if defence.Off(defence.StreamFollowers) {
		var all []string
		for _, of := range f.runs[cid] {
			all = append(all, of...)
		}
		return all
	}
	return slices.Clone(f.runs[cid][run])
}

// methods binds the declared methods about following.
func (f *following) methods(t rpc.Table) {
	rpc.Bind(t, rpc.RunFollow, func(_ context.Context, who rpc.Caller, in rpc.OnRun) (rpc.None, error) {
		f.follow(who.Computer, who.Principal, in.Run)
		return rpc.None{}, nil
	})
}

// Forget ends what a session follows in a computer, because its connection has ended.
func (s *Services) Forget(cid contract.CID, principal string) { s.following.forget(cid, principal) }

// Followed returns how many followings there are: a run counts once for each session that
// follows it.
func (s *Services) Followed() (n int) {
	s.following.mu.Lock()
	defer s.following.mu.Unlock()
	for _, runs := range s.following.by {
		n += len(runs)
	}
	return n
}

// pass publishes the text of runs to each session that follows them, on a subject of that
// session's own.
func (s *Services) pass(words <-chan *nats.Msg) {
	for {
		select {
		case <-s.ctx.Done():
			return
		case msg := <-words:
			_, rest, _ := strings.Cut(msg.Subject, ".")
			cid, run, _ := strings.Cut(rest, ".")
			for _, principal := range s.following.followers(contract.CID(cid), run) {
				if err := s.options.Bus.Conn().Publish(contract.SubjectTokens(contract.CID(cid), principal, run), msg.Data); err != nil {
					s.log.Debug("a run's words were not passed on", "run", run, "error", err)
				}
			}
		}
	}
}
