package rpc

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"unicode"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/grant"
	"choir.dev/choiros/internal/view"
)

// OnMember names a member of a computer by its account.
type OnMember struct {
	At
	Account string `path:"account" minLength:"1" maxLength:"64" pattern:"^[A-Za-z0-9-]+$"`
}

// ChangeMemberRequest gives a member another role.
type ChangeMemberRequest struct {
	OnMember
	Body struct {
		Role grant.Role `json:"role" required:"true" enum:"viewer,editor,owner"`
	}
}

// Validate implements validation.
func (r ChangeMemberRequest) Validate() error { return validRole(r.Body.Role) }

// InviteRequest makes an invitation to a computer.
type InviteRequest struct {
	At
	Body struct {
		Role grant.Role `json:"role" required:"true" enum:"viewer,editor,owner"`
	}
}

// Validate implements validation.
func (r InviteRequest) Validate() error { return validRole(r.Body.Role) }

func validRole(r grant.Role) error {
	if !r.Known() {
		return &contract.FieldError{Field: "role", Reason: "must be viewer, editor or owner"}
	}
	return nil
}

// OnInvitation names an invitation to a computer.
type OnInvitation struct {
	At
	Invitation string `path:"invitation" minLength:"1" maxLength:"64" pattern:"^[A-Za-z0-9-]+$"`
}

// JoinRequest accepts an invitation.
type JoinRequest struct {
	NoComputer
	Body struct {
		Token string `json:"token" required:"true" minLength:"1" maxLength:"128"`
	}
}

// OnAccount names an account.
type OnAccount struct {
	NoComputer
	Account string `path:"account" minLength:"1" maxLength:"64" pattern:"^[A-Za-z0-9-]+$"`
}

// NewAccountRequest makes an account.
type NewAccountRequest struct {
	NoComputer
	Body struct {
		Name   string        `json:"name" required:"true" minLength:"1" maxLength:"100"`
		Powers []grant.Power `json:"powers,omitempty" maxItems:"20" doc:"of those that you have"`
	}
}

// Validate implements validation.
func (r NewAccountRequest) Validate() error {
	if err := validLine("name", r.Body.Name); err != nil {
		return err
	}
	return validPowers(r.Body.Powers)
}

// ChangeAccountRequest sets an account's powers over the machine.
type ChangeAccountRequest struct {
	OnAccount
	Body struct {
		Powers []grant.Power `json:"powers" required:"true" maxItems:"20" doc:"all that it is to have"`
	}
}

// Validate implements validation.
func (r ChangeAccountRequest) Validate() error { return validPowers(r.Body.Powers) }

func validPowers(powers []grant.Power) error {
	for _, p := range powers {
		if !p.Known() {
			return &contract.FieldError{Field: "powers", Reason: fmt.Sprintf("there are %v", grant.Powers())}
		}
	}
	return nil
}

// validLine refuses what is not one line of text for people.
func validLine(field, s string) error {
	if strings.TrimSpace(s) == "" || strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return &contract.FieldError{Field: field, Reason: "is blank or has characters that can't be seen"}
	}
	return nil
}

// LinkRequest makes a sign-in link.
type LinkRequest struct {
	NoComputer
	Account string `query:"account" maxLength:"64" doc:"whose; empty: the machine's owner's"`
}

// NewTokenRequest makes an API token.
type NewTokenRequest struct {
	NoComputer
	Body struct {
		Name string                `json:"name" required:"true" minLength:"1" maxLength:"100"`
		May  []contract.Capability `json:"may,omitempty" minItems:"1" maxItems:"32" doc:"what it is for; without it, all that you may"`
		Days int                   `json:"days,omitempty" minimum:"0" maximum:"366" doc:"how long it is good for; 0: until it is revoked"`
	}
}

// Validate implements validation.
func (r NewTokenRequest) Validate() error {
	if r.Body.May != nil && len(r.Body.May) == 0 {
		return &contract.FieldError{Field: "may", Reason: "names nothing; leave it out for all that you may"}
	}
	for _, c := range r.Body.May {
		if !slices.Contains(contract.TokenCapabilities, c) {
			return &contract.FieldError{Field: "may", Reason: fmt.Sprintf("has %q; a token is made for some of %v", contract.Shorten(string(c), 40), contract.TokenCapabilities)}
		}
	}
	return validLine("name", r.Body.Name)
}

// GitTokenRequest makes a token for git.
type GitTokenRequest struct {
	At
	Body struct {
		Repository string `json:"repository,omitempty" maxLength:"4096" doc:"where it lies, such as workspace/app; empty: the history of the computer's own files"`
		Name       string `json:"name" required:"true" minLength:"1" maxLength:"100"`
		Write      bool   `json:"write,omitempty" doc:"may push"`
		Days       int    `json:"days,omitempty" minimum:"1" maximum:"366" default:"30" doc:"how long it is good for"`
	}
}

// Validate implements validation.
func (r GitTokenRequest) Validate() error { return validLine("name", r.Body.Name) }

// OnToken names a token.
type OnToken struct {
	NoComputer
	Token string `path:"token" minLength:"1" maxLength:"64" pattern:"^[A-Za-z0-9-]+$"`
}

func remove(path, id string) Route { return Route{http.MethodDelete, path, id} }
func patch(path, id string) Route  { return Route{http.MethodPatch, path, id} }

// Members of a computer and invitations to it.
var (
	MemberList = list[Of, view.Member](Declared{
		Name: "member.list", Summary: "Who is in a computer, and as what",
		HTTP: get("/members", "members-list"), May: contract.CanRead, Callers: API, Needs: Known, Host: true, Noun: "members"})
	MemberChange = done[ChangeMemberRequest](Declared{
		Name: "member.change", Summary: "Give a member another role",
		HTTP: patch("/members/{account}", "members-change"), May: contract.CanInvite, Callers: API, Effect: Stops, Needs: Known, Host: true})
	MemberRemove = done[OnMember](Declared{
		Name: "member.remove", Summary: "Take a member out: what they have open in the computer ends at once",
		HTTP: remove("/members/{account}", "members-remove"), May: contract.CanInvite, Callers: API, Effect: Stops, Needs: Known, Host: true})
	MemberLeave = done[Of](Declared{
		Name: "member.leave", Summary: "Leave a computer",
		HTTP: post("/leave", "members-leave"), May: contract.CanSelf, Callers: API, Effect: Stops, Needs: Known, Host: true})
	InvitationCreate = single[InviteRequest, view.Invitation](Declared{
		Name: "invitation.create", Summary: "Invite one account: whoever has the token first is let in",
		HTTP: post("/invitations", "invitations-create"), May: contract.CanInvite, Callers: API, Effect: Stops, Needs: Known, Host: true})
	InvitationList = list[Of, view.Invitation](Declared{
		Name: "invitation.list", Summary: "Invitations that wait",
		HTTP: get("/invitations", "invitations-list"), May: contract.CanInvite, Callers: API, Needs: Known, Host: true, Noun: "invitations"})
	InvitationRevoke = done[OnInvitation](Declared{
		Name: "invitation.revoke", Summary: "Take an invitation back",
		HTTP: remove("/invitations/{invitation}", "invitations-revoke"), May: contract.CanInvite, Callers: API, Effect: Stops, Needs: Known, Host: true})
)

// Accounts of this machine and their tokens.
var (
	AccountGet = single[Nothing, view.Account](Declared{
		Name: "account.get", Summary: "Who is signed in", HTTP: get("/account", "account-get"), May: contract.CanRead, Callers: API, Needs: Plane, Host: true})
	AccountLink = single[LinkRequest, view.Link](Declared{
		Name: "account.link", Summary: "Make a one-time sign-in link; for the machine owner's own program only",
		HTTP: post("/links", "account-link"), May: contract.CanAccounts, Callers: Owner, Effect: Stops, Needs: Plane, Host: true})
	AccountList = list[Nothing, view.Account](Declared{
		Name: "account.list", Summary: "Everybody who may sign in, oldest first",
		HTTP: get("/accounts", "accounts-list"), May: contract.CanAccounts, Callers: API, Needs: Plane, Host: true, Noun: "accounts"})
	AccountInvite = single[NewAccountRequest, view.Invited](Declared{
		Name: "account.invite", Summary: "Make an account and the link that signs in to it, once",
		HTTP: post("/accounts", "accounts-invite"), May: contract.CanAccounts, Callers: People, Effect: Stops, Needs: Plane, Host: true})
	AccountChange = done[ChangeAccountRequest](Declared{
		Name: "account.change", Summary: "Say what of the machine's administration an account may",
		HTTP: patch("/accounts/{account}", "accounts-change"), May: contract.CanAccounts, Callers: API, Effect: Stops, Needs: Plane, Host: true})
	AccountRemove = done[OnAccount](Declared{
		Name: "account.remove", Summary: "Remove an account with its sessions, tokens and memberships",
		HTTP: remove("/accounts/{account}", "accounts-remove"), May: contract.CanAccounts, Callers: API, Effect: Stops, Needs: Plane, Host: true})
	InvitationAccept = single[JoinRequest, view.Membership](Declared{
		Name: "invitation.accept", Summary: "Become a member of a computer by an invitation",
		HTTP: post("/join", "invitations-accept"), May: contract.CanSelf, Callers: API, Effect: Stops, Needs: Plane, Host: true})
	TokenList = list[Nothing, view.Token](Declared{
		Name: "token.list", Summary: "Your tokens, of the API and for git, without their secrets",
		HTTP: get("/tokens", "tokens-list"), May: contract.CanSelf, Callers: API, Needs: Plane, Host: true, Noun: "tokens"})
	TokenCreate = single[NewTokenRequest, view.Token](Declared{
		Name: "token.create", Summary: "Make an API token for what you may or for less; its secret is shown once",
		HTTP: post("/tokens", "tokens-create"), May: contract.CanSelf, Callers: People, Effect: Stops, Needs: Plane, Host: true})
	GitToken = single[GitTokenRequest, view.GitAccess](Declared{
		Name: "git.token", Summary: "Make a token for git, good for one repository; its secret is shown once",
		Detail: "The repository's address is the path in the answer, below this server's origin. A token that another token made ends with it.",
		HTTP:   post("/git/tokens", "git-token"), May: contract.CanSelf, Also: contract.CanRead, Callers: API, Effect: Stops, Host: true})
	TokenRevoke = done[OnToken](Declared{
		Name: "token.revoke", Summary: "Make one of your tokens invalid, and those for git that it made: what is open by them ends at once",
		HTTP: remove("/tokens/{token}", "tokens-revoke"), May: contract.CanSelf, Callers: API, Effect: Stops, Needs: Plane, Host: true})
)
