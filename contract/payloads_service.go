package contract

// ServiceFailed says that one of a computer's own services, such as the one
// that keeps its state up to the log, failed or panicked.
type ServiceFailed struct {
	Service string `json:"service" v:"required,max=128"`
	Error   string `json:"error" v:"required,max=8192"`
	InRow   int    `json:"in_row" v:"min=0"` // failures since it last ran steadily
	Again   bool   `json:"again"`            // it is started again; false: the computer is put to sleep
}

// Validate implements Payload.
func (p ServiceFailed) Validate() error { return check(p) }

func init() {
	register[ServiceFailed](TypeInfo{Type: "service.failed", Doc: "One of the computer's own services failed.", By: host, Needs: CanRecord})
}
