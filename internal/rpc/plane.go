package rpc

import (
	"net/http"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/lazy"
	"choir.dev/choiros/internal/view"
)

// Nothing is a request to the control plane that has no parameters.
type Nothing struct{ NoComputer }

var secretName = lazy.Regexp(`^[A-Za-z][A-Za-z0-9_.-]{0,99}$`)

// OnSecret names a secret.
type OnSecret struct {
	NoComputer
	Name string `path:"name" maxLength:"100"`
}

// Validate implements validation.
func (r OnSecret) Validate() error {
	if !secretName().MatchString(r.Name) {
		return &contract.FieldError{Field: "name", Reason: "must be a letter and then letters, digits, _ . or -"}
	}
	return nil
}

// SetSecretRequest stores a secret.
type SetSecretRequest struct {
	OnSecret
	Body struct {
		Value string `json:"value" required:"true" minLength:"1" maxLength:"65536"`
	}
}

// TestModelRequest tests a model by a minimal request.
type TestModelRequest struct {
	NoComputer
	Body struct {
		Model string `json:"model,omitempty" maxLength:"200" doc:"empty: the default"`
	}
}

// CreateRequest makes a computer.
type CreateRequest struct {
	NoComputer
	Body struct {
		ID   contract.CID `json:"id,omitempty" doc:"16 lower-case letters and digits drawn by the sender; the same id again is the same computer" maxLength:"16"`
		Name string       `json:"name" required:"true" minLength:"1" maxLength:"100"`
	}
}

// Validate implements validation.
func (r CreateRequest) Validate() error {
	if r.Body.ID == "" {
		return nil
	}
	return r.Body.ID.Validate()
}

// The control plane itself. Signing in and out are not here: they set cookies.
var (
	ComputerList = list[Nothing, view.Computer](Declared{
		Name: "computer.list", Summary: "Your computers, oldest first",
		HTTP: get("/computers", "computers-list"), May: contract.CanRead, Callers: API, Needs: Plane, Host: true, Noun: "computers"})
	ComputerRemoved = list[Nothing, view.Computer](Declared{
		Name: "computer.removed", Summary: "Computers that were removed and can be put back; those that you own",
		HTTP: get("/removed-computers", "computers-removed"), May: contract.CanRead, Callers: API, Needs: Plane, Host: true, Noun: "computers"})
	ComputerCreate = single[CreateRequest, view.Computer](Declared{
		Name: "computer.create", Summary: "Make a computer; answered once it is awake",
		HTTP: post("/computers", "computers-create"), May: contract.CanComputers, Callers: API, Effect: Stops, Needs: Plane, Host: true, Limit: 2 * Quick})
	SecretList = list[Nothing, view.Secret](Declared{
		Name: "secret.list", Summary: "Names of the stored secrets",
		HTTP: get("/secrets", "secrets-list"), May: contract.CanSecrets, Callers: API, Needs: Plane, Host: true, Noun: "secrets"})
	SecretSet = done[SetSecretRequest](Declared{
		Name: "secret.set", Summary: "Store a secret; nothing returns it",
		HTTP: Route{http.MethodPut, "/secrets/{name}", "secrets-set"}, May: contract.CanSecrets, Callers: API, Effect: Stops, Needs: Plane, Host: true})
	SecretRemove = done[OnSecret](Declared{
		Name: "secret.remove", Summary: "Remove a secret",
		HTTP: Route{http.MethodDelete, "/secrets/{name}", "secrets-remove"}, May: contract.CanSecrets, Callers: API, Effect: Stops, Needs: Plane, Host: true})
	ModelList = list[Nothing, view.Model](Declared{
		Name: "model.list", Summary: "Models that can be asked for",
		HTTP: get("/models", "models-list"), May: contract.CanRead, Callers: API, Needs: Plane, Host: true, Noun: "models"})
	ModelTest = single[TestModelRequest, view.ModelTest](Declared{
		Name: "model.test", Summary: "Ask a model for a word",
		HTTP: post("/models/test", "models-test"), May: contract.CanModels, Callers: API, Effect: Stops, Needs: Plane, Host: true, Limit: 2 * Quick})
	SystemStatus = single[Nothing, view.Status](Declared{
		Name: "system.status", Summary: "How your computers and their parts are and what their runs wait for; and the machine's parts, for whoever looks after it",
		HTTP: get("/status", "system-status"), May: contract.CanRead, Callers: API, Needs: Plane, Host: true})
	InboxList = list[Nothing, view.Waiting](Declared{
		Name: "inbox.list", Summary: "What waits for you in all your computers: approvals and questions of runs, effects whose outcome is unknown, and work to be looked at; it wakes none",
		HTTP: get("/inbox", "inbox-list"), May: contract.CanRead, Callers: API, Needs: Plane, Host: true, Noun: "waiting"})
	Doctor = list[Nothing, view.Finding](Declared{
		Name: "system.doctor", Summary: "What the machine provides, and what is missing",
		HTTP: get("/doctor", "system-doctor"), May: contract.CanMachine, Callers: API, Needs: Plane, Host: true, Limit: 2 * Quick, Noun: "findings"})
)
