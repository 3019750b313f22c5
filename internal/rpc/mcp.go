package rpc

import (
	"net/http"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/view"
)

// AddMCPServerRequest adds a server.
type AddMCPServerRequest struct {
	At
	Body view.NewMCPServer
}

// OnMCPServer names a server.
type OnMCPServer struct {
	At
	Server string `path:"server" pattern:"^[a-z][a-z0-9]{0,19}$"`
}

// ApproveMCPRequest approves tools of a server.
type ApproveMCPRequest struct {
	OnMCPServer
	Body struct {
		Tools []view.MCPApproval `json:"tools" required:"true" minItems:"1" maxItems:"64"`
	}
}

// RevokeMCPRequest takes approvals back.
type RevokeMCPRequest struct {
	OnMCPServer
	Body struct {
		Tools []string `json:"tools" required:"true" minItems:"1" maxItems:"64"`
	}
}

// Servers of the Model Context Protocol, whose tools tasks may use. Only people add and approve.
var (
	MCPServerList = list[Of, view.MCPServer](Declared{
		Name: "mcp.list", Summary: "The servers of the Model Context Protocol that were added, with what is approved of their tools",
		HTTP: get("/mcp-servers", "mcp-list"), May: contract.CanRead, Callers: API, Noun: "servers"})
	MCPServerAdd = single[AddMCPServerRequest, view.MCPServer](Declared{
		Name: "mcp.add", Summary: "Add a server; none of its tools is used before it is approved",
		HTTP: post("/mcp-servers", "mcp-add"), May: contract.CanApprove, Callers: People, Effect: Governs})
	MCPServerShow = single[OnMCPServer, view.MCPServer](Declared{
		Name: "mcp.show", Summary: "A server with all that it offers now, for which it is started",
		HTTP: get("/mcp-servers/{server}", "mcp-show"), May: contract.CanApprove, Callers: People, Limit: Long})
	MCPServerApprove = single[ApproveMCPRequest, view.MCPServer](Declared{
		Name: "mcp.approve", Summary: "Approve tools of a server as they were shown",
		HTTP: post("/mcp-servers/{server}/approve", "mcp-approve"), May: contract.CanApprove, Callers: People, Effect: Governs, Limit: Long})
	MCPServerRevoke = single[RevokeMCPRequest, view.MCPServer](Declared{
		Name: "mcp.revoke", Summary: "Take approvals of a server's tools back",
		HTTP: post("/mcp-servers/{server}/revoke", "mcp-revoke"), May: contract.CanApprove, Callers: People, Effect: Governs})
	MCPServerRemove = done[OnMCPServer](Declared{
		Name: "mcp.remove", Summary: "Remove a server with all that was approved of it, and end it",
		HTTP: Route{http.MethodDelete, "/mcp-servers/{server}", "mcp-remove"}, May: contract.CanApprove, Callers: People, Effect: Governs})
)
