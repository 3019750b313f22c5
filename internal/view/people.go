package view

import (
	"time"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/grant"
)

// Account is somebody who may sign in.
type Account struct {
	ID      string        `json:"id"`
	Name    string        `json:"name"`
	Claimed bool          `json:"claimed" doc:"whether somebody has signed in to it"`
	Created time.Time     `json:"created"`
	Powers  []grant.Power `json:"powers,omitempty" doc:"what of the machine's administration it may"`
	Machine bool          `json:"machine,omitempty" doc:"the machine's owner, who keeps every power"`
}

// Invited is an account that was made, and the link that signs in to it.
type Invited struct {
	Account Account `json:"account"`
	Link
}

// Link is a one-time sign-in link.
type Link struct {
	URL     string    `json:"url"`
	Expires time.Time `json:"expires"`
}

// Member is an account's place in a computer.
type Member struct {
	ID    string     `json:"id"` // the account
	Name  string     `json:"name"`
	Role  grant.Role `json:"role" enum:"viewer,editor,owner"`
	Since time.Time  `json:"since"`
}

// Membership is a computer that an account has become a member of.
type Membership struct {
	Computer contract.CID `json:"computer"`
	Role     grant.Role   `json:"role" enum:"viewer,editor,owner"`
}

// Invitation lets one account into a computer. Its token stands in no list.
type Invitation struct {
	ID      string     `json:"id"`
	Role    grant.Role `json:"role" enum:"viewer,editor,owner"`
	By      string     `json:"by"` // the account that invites
	Expires time.Time  `json:"expires"`
	Token   string     `json:"token,omitempty" doc:"in the answer to who made it only: whoever has it first is let in"`
}

// Token is an API token without its secret.
type Token struct {
	ID      string    `json:"id"`
	Name    string    `json:"name"`
	Created time.Time `json:"created"`
	Machine bool      `json:"machine,omitempty" doc:"the one that the machine's owner keeps in a file"`
	Secret  string    `json:"secret,omitempty" doc:"in the answer to who made it only"`
}
