package contract

// ServiceFailed says that one of a computer's own services, such as the one
// that keeps its state up to the log, failed or panicked. Of failures in a row
// only the first is an event.
type ServiceFailed struct {
	Service string `json:"service" v:"required,max=128"`
	Error   string `json:"error" v:"required,max=8192"`
	InRow   int    `json:"in_row" v:"min=0"` // failures since it last ran steadily
	Again   bool   `json:"again"`            // it is started again; false: it was to run once
}

// Validate implements Payload.
func (p ServiceFailed) Validate() error { return check(p) }

// ServiceRestarted says that a service that failed has run steadily since.
type ServiceRestarted struct {
	Service  string `json:"service" v:"required,max=128"`
	Failures int    `json:"failures" v:"min=1"` // in a row, before it did
}

// Validate implements Payload.
func (p ServiceRestarted) Validate() error { return check(p) }

// ServiceGaveUp says that a service failed too often within a time and is not
// started again by itself.
type ServiceGaveUp struct {
	Service  string `json:"service" v:"required,max=128"`
	Error    string `json:"error" v:"required,max=8192"` // of the last failure
	Failures int    `json:"failures" v:"min=1"`          // within that time
	Sleeps   bool   `json:"sleeps"`                      // the computer can't do without it and is put to sleep
}

// Validate implements Payload.
func (p ServiceGaveUp) Validate() error { return check(p) }

func init() {
	register[ServiceFailed](TypeInfo{Type: "service.failed", Doc: "One of the computer's own services failed.", By: host, Needs: CanRecord})
	register[ServiceRestarted](TypeInfo{Type: "service.restarted", Doc: "A service of the computer's own that had failed runs again.", By: host, Needs: CanRecord})
	register[ServiceGaveUp](TypeInfo{Type: "service.gave_up", Doc: "A service of the computer's own failed too often and is not started again by itself.", By: host, Needs: CanRecord})
}
