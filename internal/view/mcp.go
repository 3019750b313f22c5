package view

import (
	"encoding/json"
	"time"
)

// NewMCPServer is a server of the Model Context Protocol as a person adds it.
type NewMCPServer struct {
	Name    string      `json:"name" required:"true" pattern:"^[a-z][a-z0-9]{0,19}$"`
	Command []string    `json:"command,omitempty" maxItems:"64" doc:"a program and its arguments, which runs in a box of its own and speaks on its standard streams"`
	URL     string      `json:"url,omitempty" maxLength:"2048" doc:"in place of command: the address, https, of one elsewhere that speaks streamable HTTP"`
	Egress  []string    `json:"egress,omitempty" maxItems:"20" doc:"hosts that the box may reach, as host:port or *.suffix:port"`
	Secrets []MCPSecret `json:"secrets,omitempty" maxItems:"20" doc:"of the vault, for the program's environment; takes secrets"`
	Bearer  string      `json:"bearer,omitempty" maxLength:"128" doc:"the name of the secret that requests to the address carry; takes secrets"`
	Files   bool        `json:"files,omitempty" doc:"the box sees the computer's files, read-only"`
}

// MCPSecret is a secret and the variable of the environment that it is given in.
type MCPSecret struct {
	Variable string `json:"variable" minLength:"1" maxLength:"128"`
	Secret   string `json:"secret" minLength:"1" maxLength:"128"`
}

// MCPServer is a server that a person added. Its tools are those that were approved, or all that it offers
// where it was asked.
type MCPServer struct {
	ID      string      `json:"id"` // its name
	Command []string    `json:"command,omitempty"`
	URL     string      `json:"url,omitempty"`
	Egress  []string    `json:"egress,omitempty"`
	Secrets []MCPSecret `json:"secrets,omitempty"`
	Bearer  string      `json:"bearer,omitempty"`
	Files   bool        `json:"files,omitempty"`
	Added   time.Time   `json:"added"`
	Running bool        `json:"running"` // or reached, now
	Waiting int         `json:"waiting"` // how many tools changed after they were approved
	Tools   []MCPTool   `json:"tools"`
}

// MCPToolState says what becomes of a tool.
type MCPToolState string

// What becomes of tools.
const (
	MCPToolNew      MCPToolState = "new"      // it was never approved
	MCPToolApproved MCPToolState = "approved" // tasks may use it
	MCPToolChanged  MCPToolState = "changed"  // it is other than what was approved, or gone
	MCPToolRefused  MCPToolState = "refused"  // it can't be approved
)

// MCPTool is a tool of a server. What it says of itself is the server's word.
type MCPTool struct {
	ID          string          `json:"id"`           // what the server calls it
	As          string          `json:"as,omitempty"` // what tasks call it
	State       MCPToolState    `json:"state"`
	Reason      string          `json:"reason,omitempty"` // why it changed or is refused
	Description string          `json:"description,omitempty"`
	Schema      json.RawMessage `json:"schema,omitempty"` // of its arguments
	Digest      string          `json:"digest,omitempty"` // of all that the server says of it; an approval names it
	SaysReads   bool            `json:"says_reads,omitempty"`
	Reads       bool            `json:"reads,omitempty"` // a person believed that
}

// MCPApproval approves a tool as the digest says.
type MCPApproval struct {
	Tool   string `json:"tool" minLength:"1" maxLength:"128"`
	Digest string `json:"digest" minLength:"1" maxLength:"64" doc:"as it was shown"`
	Reads  bool   `json:"reads,omitempty" doc:"that the server says it only reads is believed"`
}
