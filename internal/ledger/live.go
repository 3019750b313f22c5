package ledger

import (
	"runtime"
	"slices"

	"choir.dev/choiros/contract"
)

// Live is where acknowledged events are published to those who follow a log live; *bus.Bus
// is one.
type Live interface {
	// Heard reports whether anybody is subscribed to a subject now.
	Heard(subject string) bool
	// Say publishes a message, in the order of the calls.
	Say(subject string, data []byte) error
}

// sayAtOnce is how many events are taken from the log at once to be published.
const sayAtOnce = 64

// speaker publishes on live.{cid} the events that the log has acknowledged: each once, in
// the log's order, and none before it is acknowledged. So appending does not wait for
// subscribers, and nobody sees an event that a power cut could take back.
//
// An event that a Log could not publish (its process died, or the server was away for long)
// is a gap for subscribers: they notice it by the sequence of the next event or of the
// tick, and read what they missed from the log.
type speaker struct {
	to   Live
	said uint64        // guarded by Log.mu: up to here events were taken to be published, or nobody was subscribed
	wake chan struct{} // buffered; signals that there are events to publish
	end  chan struct{} // closed when nothing more will be acknowledged
	done chan struct{} // closed when everything was published
}

func newSpeaker(to Live, said uint64) *speaker {
	return &speaker{to: to, said: said, wake: make(chan struct{}, 1), end: make(chan struct{}), done: make(chan struct{})}
}

// tell has acknowledged events published, after the log's readers can see them. A
// subscriber that comes after nobody was subscribed asks the log how far it goes; because
// events become visible to readers before it is checked here whether there are subscribers,
// such a subscriber misses none.
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

// speak publishes events until the log is closed.
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
		// Callers that wait for the acknowledgement go first: publishing an event to a
		// thousand subscribers takes more processor time than storing it.
		runtime.Gosched()
		for _, e := range page {
			data := e.data
			if data == nil {
				var err error
				if data, err = contract.Stored(e.event); err != nil {
					continue // can't be, for the event was read from such bytes; subscribers would read it from the log
				}
			}
			// A message that can't be sent is lost together with the subscribers'
			// connection. They read what they missed from the log once they have
			// reconnected.
			_ = s.to.Say(contract.SubjectSaid(e.event), data)
		}
	}
}

// unsaid takes the next events that have not been published yet; none when all were.
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
		// The events are no longer in memory, because publishing is too far behind.
		page, err := l.fetch(l.ctx, after, last, position, sayAtOnce)
		if err == nil {
			after = page[len(page)-1].event.Sequence
		} else { // subscribers read them from the log, which reports why it can't
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

// hush ends the speaker once it has published everything. A nil speaker has nothing to
// publish.
func (s *speaker) hush() {
	if s != nil {
		close(s.end)
		<-s.done
	}
}
