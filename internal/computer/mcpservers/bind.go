package mcpservers

import (
	"context"

	"choir.dev/choiros/internal/rpc"
	"choir.dev/choiros/internal/view"
)

// Bind binds the methods about servers.
func (s *Servers) Bind(t rpc.Table) {
	rpc.Bind(t, rpc.MCPServerList, func(context.Context, rpc.Caller, rpc.Of) (rpc.List[view.MCPServer], error) {
		return rpc.Listed(s.List(), false, nil)
	})
	rpc.Bind(t, rpc.MCPServerAdd, func(ctx context.Context, who rpc.Caller, in rpc.AddMCPServerRequest) (view.MCPServer, error) {
		return s.Add(ctx, who.Actor, in.Body)
	})
	rpc.Bind(t, rpc.MCPServerShow, func(ctx context.Context, _ rpc.Caller, in rpc.OnMCPServer) (view.MCPServer, error) {
		return s.Show(ctx, in.Server)
	})
	rpc.Bind(t, rpc.MCPServerApprove, func(ctx context.Context, who rpc.Caller, in rpc.ApproveMCPRequest) (view.MCPServer, error) {
		return s.Approve(ctx, who.Actor, in.Server, in.Body.Tools)
	})
	rpc.Bind(t, rpc.MCPServerRevoke, func(ctx context.Context, who rpc.Caller, in rpc.RevokeMCPRequest) (view.MCPServer, error) {
		return s.Revoke(ctx, who.Actor, in.Server, in.Body.Tools)
	})
	rpc.Bind(t, rpc.MCPServerRemove, func(ctx context.Context, who rpc.Caller, in rpc.OnMCPServer) (rpc.None, error) {
		return rpc.Done(s.Remove(ctx, who.Actor, in.Server))
	})
}
