package view

import (
	"time"

	"choir.dev/choiros/contract"
)

// Approval is a request for something beyond what the computer was granted, which waits for
// a person. Everything in it is the host's own knowledge, except Claim.
type Approval struct {
	ID      string                `json:"id"`
	Kind    contract.ApprovalKind `json:"kind"`
	Run     string                `json:"run"`
	Prompt  string                `json:"prompt"` // what the user said; it caused the run
	Task    string                `json:"task"`
	Attempt int                   `json:"attempt"`
	Host    string                `json:"host"`
	Port    int                   `json:"port"`
	URL     string                `json:"url,omitempty"` // of a fetch and a request: the whole address
	// Of a request that changes something: its method, all of it as it leaves, the effect that it makes once more, and what
	// is shown of it.
	Method   string                  `json:"method,omitempty"`
	Sends    contract.BlobRef        `json:"sends,omitempty"`
	Again    string                  `json:"again,omitempty"`
	Request  *contract.RequestShown  `json:"request,omitempty"`
	Digest   string                  `json:"digest"`          // of the act; the answer names it
	Claim    string                  `json:"claim,omitempty"` // what the agent says about it, unchecked
	Asked    time.Time               `json:"asked"`
	Deadline time.Time               `json:"deadline"`         // then it is denied
	Answer   contract.ApprovalAnswer `json:"answer,omitempty"` // empty while it is open
	By       contract.ActorKind      `json:"by,omitempty"`     // who answered: user or system
	Reason   string                  `json:"reason,omitempty"` // why the system denied it
	Answered time.Time               `json:"answered,omitzero"`
	Sequence uint64                  `json:"sequence"` // of the question; pages go by it
	// Body is the whole body of a request, where one approval is shown. What can't be seen is spelled out.
	Body string `json:"body,omitempty"`
}

// Act is what the approval allows.
func (a Approval) Act() contract.Act {
	return contract.Act{Kind: a.Kind, Run: a.Run, Host: a.Host, Port: a.Port, URL: a.URL, Method: a.Method, Sends: a.Sends, Again: a.Again}
}

// Decision answers an approval.
type Decision struct {
	Digest string                  `json:"digest" minLength:"1" maxLength:"80" doc:"of the act that was shown"`
	Answer contract.ApprovalAnswer `json:"answer" enum:"once,run,deny" doc:"once: to what waits for it now; run: to every task of the run, and of a request that changes something refused; deny: holds for the run"`
}

// Traffic is what passed the tunnels to one host and port, in bytes as the
// boxes see it.
type Traffic struct {
	ID       string `json:"id"` // host:port
	Host     string `json:"host"`
	Port     int    `json:"port"`
	Tunnels  int    `json:"tunnels"`
	Sent     int64  `json:"sent"`
	Received int64  `json:"received"`
}
