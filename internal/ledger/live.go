package ledger

import (
	"runtime"
	"slices"

	"choir.dev/choiros/contract"
)

// Live is where acknowledged events are published to those who follow a log live; *bus.Bus
// is one.
type Live interface {
	// Subscribed reports whether anybody is subscribed to a subject now.
	Subscribed(subject string) bool
	// Publish publishes a message, in the order of the calls.
	Publish(subject string, data []byte) error
}

// publishAtOnce is how many events are taken from the log at once to be published.
const publishAtOnce = 64

// publisher publishes on live.{cid} the events that the log has acknowledged: each once, in
// the log's order, and none before it is acknowledged. So appending does not wait for
// subscribers, and nobody sees an event that a power cut could take back.
//
// An event that a Log could not publish (its process died, or the server was away for long)
// is a gap for subscribers: they notice it by the sequence of the next event or of the
// tick, and read what they missed from the log.
type publisher struct {
	to        Live
	published uint64        // guarded by Log.mu: up to here events were taken to be published, or nobody was subscribed
	wake      chan struct{} // buffered; signals that there are events to publish
	end       chan struct{} // closed when nothing more will be acknowledged
	done      chan struct{} // closed when everything was published
}

func newPublisher(to Live, published uint64) *publisher {
	return &publisher{to: to, published: published, wake: make(chan struct{}, 1), end: make(chan struct{}), done: make(chan struct{})}
}

// wakePublisher has acknowledged events published, after the log's readers can see them. A
// subscriber that comes after nobody was subscribed asks the log how far it goes; because
// events become visible to readers before it is checked here whether there are subscribers,
// such a subscriber misses none.
func (l *Log) wakePublisher(events []stored) {
	p := l.publisher
	if p == nil || len(events) == 0 {
		return
	}
	subscribed := false
	for i := range events {
		subscribed = subscribed || p.to.Subscribed(contract.SubjectLiveEvent(events[i].event))
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	last := events[len(events)-1].event.Sequence
	if !subscribed && p.published+uint64(len(events)) == last {
		p.published = last
		l.recent.forget(last)
		return
	}
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// publishLive publishes events until the log is closed.
func (l *Log) publishLive() {
	p := l.publisher
	defer close(p.done)
	for ended := false; ; {
		page := l.nextUnpublished()
		if len(page) == 0 {
			if ended {
				return
			}
			select {
			case <-p.wake:
			case <-p.end:
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
			_ = p.to.Publish(contract.SubjectLiveEvent(e.event), data)
		}
	}
}

// nextUnpublished takes the next events that have not been published yet; none when all were.
func (l *Log) nextUnpublished() []stored {
	p := l.publisher
	for {
		l.mu.Lock()
		after, last, position := p.published, l.newest.event.Sequence, l.newest.position
		if after >= last {
			l.mu.Unlock()
			return nil
		}
		page, ok := l.recent.after(after, publishAtOnce)
		if ok {
			page = slices.Clone(page)
			p.published += uint64(len(page))
			l.recent.forget(p.published)
		}
		first := l.recent.first()
		l.mu.Unlock()
		if ok {
			return page
		}
		// The events are no longer in memory, because publishing is too far behind.
		page, err := l.fetch(l.ctx, after, last, position, publishAtOnce)
		if err == nil {
			after = page[len(page)-1].event.Sequence
		} else { // subscribers read them from the log, which reports why it can't
			after = first - 1
		}
		l.mu.Lock()
		p.published = after
		l.mu.Unlock()
		if err == nil {
			return page
		}
	}
}

// close ends the publisher once it has published everything. A nil publisher has nothing to
// publish.
func (p *publisher) close() {
	if p != nil {
		close(p.end)
		<-p.done
	}
}
