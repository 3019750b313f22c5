package contract

import (
	"encoding/json"
	"net/url"
	"strings"
)

// MaxMCPTool bounds what a server of the Model Context Protocol says of one of its tools, in bytes.
const MaxMCPTool = 32 << 10

type (
	// MCPAdded says that a person added a server of the Model Context Protocol: a program,
	// which runs in a box of its own, or the address of one that runs elsewhere. Only a
	// person adds one, and nothing in a tree can.
	MCPAdded struct {
		Server string `json:"server" v:"required,max=20"`
		// Command is the program and its arguments; URL the address. One of them is set.
		Command []string `json:"command,omitempty" v:"items=64;max=4096"`
		URL     string   `json:"url,omitempty" v:"line,max=2048"`
		// Egress lists the hosts that the box may reach, as host:port or *.suffix:port. A server with an
		// address is reached there and nowhere else.
		Egress []string `json:"egress,omitempty" v:"items=20;required,line,max=300"`
		// Secrets lists what the program finds in its environment.
		Secrets []MCPSecret `json:"secrets,omitempty" v:"items=20"`
		// Bearer names the secret that requests to the address carry.
		Bearer string `json:"bearer,omitempty" v:"line,max=128"`
		// Files says that the box sees the computer's files, read-only.
		Files bool `json:"files,omitempty"`
	}
	// MCPSecret names a secret of the vault, and the variable of the environment that it is given in.
	MCPSecret struct {
		Variable string `json:"variable" v:"required,line,max=128"`
		Secret   string `json:"secret" v:"required,line,max=128"`
	}
	// MCPRemoved says that a person removed a server, with all that was approved of it.
	MCPRemoved struct {
		Server string `json:"server" v:"required,max=20"`
	}
	// MCPApproved says that a person approved a tool of a server as it was then.
	MCPApproved struct {
		Server string `json:"server" v:"required,max=20"`
		Tool   string `json:"tool" v:"required,line,max=128"`
		// Definition is what the server said of the tool, and Digest is of that.
		Definition json.RawMessage `json:"definition" v:"max=32768"`
		Digest     string          `json:"digest" v:"required,max=64"`
		// Reads says that the person believes the server that the tool only reads.
		Reads bool `json:"reads,omitempty"`
	}
	// MCPRevoked says that a person took an approval back.
	MCPRevoked struct {
		Server string `json:"server" v:"required,max=20"`
		Tool   string `json:"tool" v:"required,line,max=128"`
	}
	// MCPChanged says that a tool was found to be other than what was approved, or gone, so
	// that it is not used until a person approves it again. Digest is of what it is now.
	MCPChanged struct {
		Server string `json:"server" v:"required,max=20"`
		Tool   string `json:"tool" v:"required,line,max=128"`
		Digest string `json:"digest,omitempty" v:"max=64"`
		Reason string `json:"reason" v:"required,line,max=512"`
	}
)

// Validate implements Payload.
func (p MCPAdded) Validate() error { return check(p) }

// Validate implements Payload.
func (p MCPRemoved) Validate() error { return check(p) }

// Validate implements Payload.
func (p MCPApproved) Validate() error { return check(p) }

// Validate implements Payload.
func (p MCPRevoked) Validate() error { return check(p) }

// Validate implements Payload.
func (p MCPChanged) Validate() error { return check(p) }

func (p MCPAdded) crossCheck() error {
	switch {
	case (len(p.Command) == 0) == (p.URL == ""):
		return fieldErr("command", "or url is to be given, and not both")
	case p.URL == "" && p.Bearer != "":
		return fieldErr("bearer", "is for a server with an address")
	case p.URL != "" && (p.Files || len(p.Egress) > 0 || len(p.Secrets) > 0):
		return fieldErr("url", "is of a server elsewhere, which has no box: files, egress and secrets are for a command")
	case p.URL == "" && p.Command[0] == "":
		return fieldErr("command[0]", "is empty")
	}
	for i, s := range p.Secrets {
		if strings.ContainsAny(s.Variable, "= ") {
			return fieldErr("secrets", "has %q, which is no name of a variable", Shorten(s.Variable, 40))
		}
		for _, o := range p.Secrets[:i] {
			if o.Variable == s.Variable {
				return fieldErr("secrets", "has %q twice", Shorten(s.Variable, 40))
			}
		}
	}
	if p.URL == "" {
		return nil
	}
	u, err := url.Parse(p.URL)
	if err != nil || u.Scheme != "https" || u.Hostname() == "" || u.User != nil || u.Fragment != "" {
		return fieldErr("url", "is no address that starts with https://, without a user and a fragment")
	}
	return nil
}

func init() {
	person := []ActorKind{KindPerson}
	register[MCPAdded](TypeInfo{Type: "mcp.added", Doc: "A person added a server of the Model Context Protocol, whose tools tasks may use once they are approved.", By: person, Needs: CanApprove})
	register[MCPRemoved](TypeInfo{Type: "mcp.removed", Doc: "A person removed a server of the Model Context Protocol.", By: person, Needs: CanApprove})
	register[MCPApproved](TypeInfo{Type: "mcp.approved", Doc: "A person approved a tool of a server, as the server described it then.", By: person, Needs: CanApprove})
	register[MCPRevoked](TypeInfo{Type: "mcp.revoked", Doc: "A person took the approval of a server's tool back.", By: person, Needs: CanApprove})
	register[MCPChanged](TypeInfo{Type: "mcp.changed", Doc: "A tool of a server is other than what was approved, and is not used until it is approved again.", By: host, Needs: CanRecord})
}
