package rpc

import (
	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/view"
)

// OnSession names a browser's session.
type OnSession struct {
	NoComputer
	Session string `path:"session" minLength:"1" maxLength:"64" pattern:"^[A-Za-z0-9-]+$"`
}

// What the console's sheets ask for. A program is offered none of it: it would sign somebody in, or end what others work with.
var (
	SessionList = list[Nothing, view.Browser](Declared{
		Name: "session.list", Summary: "Browsers that are signed in to your account, the one used last first",
		HTTP: get("/sessions", "sessions-list"), May: contract.CanSelf, Callers: People, Needs: Plane, Host: true, Noun: "sessions"})
	SessionEnd = done[OnSession](Declared{
		Name: "session.end", Summary: "Sign one of your browsers out: what it has open ends at once",
		HTTP: remove("/sessions/{session}", "sessions-end"), May: contract.CanSelf, Callers: People, Effect: Stops, Needs: Plane, Host: true})
	SessionLink = single[Nothing, view.DeviceLink](Declared{
		Name: "session.link", Summary: "Make a link that signs one more browser in to your own account, once, and its QR code",
		HTTP: post("/sessions/link", "sessions-link"), May: contract.CanSelf, Callers: People, Effect: Stops, Needs: Plane, Host: true})
	SystemStop = done[Nothing](Declared{
		Name: "system.stop", Summary: "Stop the control plane, as choir stop does",
		HTTP: post("/stop", "system-stop"), May: contract.CanMachine, Callers: People, Effect: Stops, Needs: Plane, Host: true})
)
