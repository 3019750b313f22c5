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
	// May is set only in the answer to somebody who asks for themselves with a token that was
	// made for less than its account may do.
	May []contract.Capability `json:"may,omitempty" doc:"what the token that asks was made for; missing: all that its account may"`
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

// Invitation lets one account into a computer. Lists leave its token out.
type Invitation struct {
	ID      string     `json:"id"`
	Role    grant.Role `json:"role" enum:"viewer,editor,owner"`
	By      string     `json:"by"` // the account that invites
	Expires time.Time  `json:"expires"`
	Token   string     `json:"token,omitempty" doc:"in the answer to who made it only: whoever has it first is let in"`
}

// GitScope is what a token for git allows: one repository, until it expires.
type GitScope struct {
	Computer   contract.CID `json:"computer"`
	Repository string       `json:"repository" doc:"where it lies; empty: the history of the computer's own files"`
	Write      bool         `json:"write" doc:"whether it may push"`
	Expires    time.Time    `json:"expires"`
}

// GitAccess is what stock git needs to reach a repository.
type GitAccess struct {
	Path       string `json:"path" doc:"of its address, below this server's origin"`
	Repository string `json:"repository" doc:"where it lies; empty: the history of the computer's own files"`
	Token      Token  `json:"token" doc:"git's password, with any name"`
}

// Token is a token without its secret: of the API, or for git.
type Token struct {
	ID      string    `json:"id"`
	Name    string    `json:"name"`
	Created time.Time `json:"created"`
	Machine bool      `json:"machine,omitempty" doc:"the one that the machine's owner keeps in a file"`
	// May is empty for a token that allows all that its account may do.
	May     []contract.Capability `json:"may,omitempty" doc:"what it was made for; missing: all that its account may"`
	Expires *time.Time            `json:"expires,omitempty" doc:"missing: it does not end by itself"`
	Git     *GitScope             `json:"git,omitempty" doc:"of a token for git, which the API does not take"`
	Secret  string                `json:"secret,omitempty" doc:"in the answer to who made it only"`
}

// Browser is a browser that is signed in to the console, by its session.
type Browser struct {
	ID      string    `json:"id"`
	Device  string    `json:"device,omitempty" doc:"such as Firefox on Linux, as it said itself; missing: it signed in before that was kept"`
	Since   time.Time `json:"since"`
	Used    time.Time `json:"used" doc:"to the minute"`
	Expires time.Time `json:"expires"`
	This    bool      `json:"this" doc:"whether it is the one that asks"`
}

// DeviceLink is a one-time sign-in link with its QR code.
type DeviceLink struct {
	Link
	QR QR `json:"qr"`
}

// QR is a QR code, to be drawn as SVG.
type QR struct {
	Size int    `json:"size" doc:"of the view box, its quiet zone included"`
	Path string `json:"path" doc:"what is dark, as the d of a path"`
}
