package view

import (
	"time"

	"choir.dev/choiros/contract"
)

// PartState says how a part of the machine or of a computer is.
type PartState string

// The states of a part.
const (
	PartRunning    PartState = "running"
	PartRestarting PartState = "restarting" // it failed, and is started again
	PartWaiting    PartState = "waiting"    // for what it needs, or for its failure to pass
	PartFailed     PartState = "failed"     // it failed too often, or what it checks is not as it should be
)

// Part is something of a machine, or of a computer that is awake, that is kept running.
type Part struct {
	Name     string    `json:"name"`
	State    PartState `json:"state"`
	Since    time.Time `json:"since,omitzero"`
	Restarts int       `json:"restarts"`
	Reason   string    `json:"reason,omitempty"` // why it failed last, or what it waits for
	Hint     string    `json:"hint,omitempty"`
	PID      int       `json:"pid,omitempty"` // its process, if it has one
}

// Well says whether nothing about a part needs anybody's attention.
func (p Part) Well() bool { return p.State == PartRunning || p.State == PartWaiting }

// UnderWay is a run that has not ended, and what it waits for.
type UnderWay struct {
	ID     string             `json:"id"`
	Status contract.RunStatus `json:"status"`
	For    string             `json:"for,omitempty"`    // person, model or slot: what it waits for
	Reason string             `json:"reason,omitempty"` // the question, or why the model can't be had
	Since  time.Time          `json:"since,omitzero"`
}

// ComputerHealth is how one computer is.
type ComputerHealth struct {
	ID      contract.CID  `json:"id"`
	Name    string        `json:"name"`
	State   ComputerState `json:"state"`
	Trouble *Trouble      `json:"trouble,omitempty"` // why it does not wake, or was put to sleep
	Parts   []Part        `json:"parts,omitempty"`   // while it is awake
	Runs    []UnderWay    `json:"runs,omitempty"`    // that have not ended; at most 100
}

// Well says whether nothing about a computer needs anybody's attention.
func (c ComputerHealth) Well() bool {
	for _, p := range c.Parts {
		if !p.Well() {
			return false
		}
	}
	return c.Trouble == nil && c.State != StateBroken
}

// Status is how a machine and computers of it are.
type Status struct {
	Well      bool             `json:"well"`              // nothing below needs anybody's attention
	Machine   []Part           `json:"machine,omitempty"` // for whoever looks after the machine
	Computers []ComputerHealth `json:"computers"`         // the caller's
}
