package defence

// The Model Context Protocol.
const (
	MCPSession  Name = "mcp.session"  // row 30: a session is of the caller and the computer that it was begun with
	MCPSessions Name = "mcp.sessions" // row 30: so many sessions at once and no more
	MCPApproved Name = "mcp.approved" // row 54: a tool that is other than what was approved is not offered
	MCPNames    Name = "mcp.names"    // row 54: no two tools of a server have one name
	MCPSchema   Name = "mcp.schema"   // row 32: no schema is too large to be checked
)
