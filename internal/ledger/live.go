package ledger

import (
	"runtime"
	"slices"

	"choir.dev/choiros/contract"
)

// Live is where those listen who follow a log live; *bus.Bus is one.
type Live interface {
	// Heard says whether anybody listens to a subject now.
	Heard(subject string) bool
	// Say sends a message to who listens, in the order of the calls.
	Say(subject string, data []byte) error
}

// sayAtOnce is how many events are taken from the log at once to be said.
const sayAtOnce = 64

// speaker says on live.{cid} what the log has acknowledged: each event once, in the
// log's order, and none before. So who appends does not wait for those who listen,
// and nobody sees what a power cut could take back.
//
// What a Log could not say (its process died, or the server was away for long) is a
// gap for who listens: the next event, or the tick, tells of it, and the log has it.
type speaker struct {
	to   Live
	said uint64        // guarded by Log.mu: up to here events were taken to be said, or nobody listened
	wake chan struct{} // buffered: there is something to say
	end  chan struct{} // closed when nothing more will be acknowledged
	done chan struct{} // closed when everything was said
}

func newSpeaker(to Live, said uint64) *speaker {
	return &speaker{to: to, said: said, wake: make(chan struct{}, 1), end: make(chan struct{}), done: make(chan struct{})}
}

// tell has acknowledged events said; the log has them already. Whoever begins to
// listen after nobody did, and then asks how far the log goes, is told of them: so
// that question must come after they were taken in, as it does here.
func (l *Log) tell(events []stored) {
	s := l.speaker
	if s == nil || len(events) == 0 {
		return
	}
	heard := false
	for i := range events {
		heard = heard || s.to.Heard(contract.SubjectSaid(events[i].event))
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	last := events[len(events)-1].event.Sequence
	if !heard && s.said+uint64(len(events)) == last {
		s.said = last
		l.recent.forget(last)
		return
	}
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// speak says what there is to say until the log is closed.
func (l *Log) speak() {
	s := l.speaker
	defer close(s.done)
	for ended := false; ; {
		page := l.unsaid()
		if len(page) == 0 {
			if ended {
				return
			}
			select {
			case <-s.wake:
			case <-s.end:
				ended = true
			}
			continue
		}
		// Who waits for the acknowledgement goes first: handing an event to a thousand
		// listeners takes a processor longer than storing it.
		runtime.Gosched()
		for _, e := range page {
			data := e.data
			if data == nil {
				var err error
				if data, err = contract.Stored(e.event); err != nil {
					continue // it came from such bytes; who listens asks the log for it
				}
			}
			// A message that can't be sent is lost with the connection of those who
			// listen, who ask the log for what they missed once they are back.
			_ = s.to.Say(contract.SubjectSaid(e.event), data)
		}
	}
}

// unsaid takes the next events that were not said yet; none when all were.
func (l *Log) unsaid() []stored {
	s := l.speaker
	for {
		l.mu.Lock()
		after, last, position := s.said, l.newest.event.Sequence, l.newest.position
		if after >= last {
			l.mu.Unlock()
			return nil
		}
		page, ok := l.recent.after(after, sayAtOnce)
		if ok {
			page = slices.Clone(page)
			s.said += uint64(len(page))
			l.recent.forget(s.said)
		}
		first := l.recent.first()
		l.mu.Unlock()
		if ok {
			return page
		}
		// Who listens took so long that they are not in memory any more.
		page, err := l.fetch(l.ctx, after, last, position, sayAtOnce)
		if err == nil {
			after = page[len(page)-1].event.Sequence
		} else { // who listens asks the log for them, and learns why
			after = first - 1
		}
		l.mu.Lock()
		s.said = after
		l.mu.Unlock()
		if err == nil {
			return page
		}
	}
}

// hush ends the speaker once it has said everything. A nil one has nothing to say.
func (s *speaker) hush() {
	if s != nil {
		close(s.end)
		<-s.done
	}
}
