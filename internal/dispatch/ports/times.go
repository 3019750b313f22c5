package ports

import "time"

// Times are the dispatcher's time limits. Zero values get the defaults, which follow each field's
// description.
type Times struct {
	Heartbeat time.Duration // how often a loop must report that it is alive; 2 s
	Silence   time.Duration // a loop that has not reported for so long is ended; 20 s
	Grace     time.Duration // how long a task may exceed its time before it is killed; 15 s
	CleanUp   time.Duration // how long undoing what a task left may take; 2 min
	// TakeBack is for how long, from each start on, the dispatcher tries to take back what a task showed
	// live; after that it stays. 10 min.
	TakeBack time.Duration
	RunWall  time.Duration // the time limit of a run whose prompt sets none; 1 h
	// Projection is how long a run waits for the state's projection when that has stopped; it is tried again. 30 min.
	Projection time.Duration
	// Approval is how long a task waits for a person before what it asks for is denied. 5 min.
	Approval time.Duration
	// Park is how long a run waits for its person before all that it has in memory and in boxes is given up; it goes on from
	// the log. 2 min.
	Park time.Duration
}

// WithDefaults fills in what is not set.
func (t Times) WithDefaults() Times {
	def := func(v *time.Duration, d time.Duration) {
		if *v <= 0 {
			*v = d
		}
	}
	def(&t.Heartbeat, 2*time.Second)
	def(&t.Silence, 20*time.Second)
	def(&t.Grace, 15*time.Second)
	def(&t.CleanUp, 2*time.Minute)
	def(&t.TakeBack, 10*time.Minute)
	def(&t.RunWall, time.Hour)
	def(&t.Projection, 30*time.Minute)
	def(&t.Approval, 5*time.Minute)
	def(&t.Park, 2*time.Minute)
	return t
}
