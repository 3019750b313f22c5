package verbs

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	"golang.org/x/term"

	"choir.dev/choiros/internal/cli"
	"choir.dev/choiros/internal/cli/terminal"
	"choir.dev/choiros/internal/client"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/rpc"
	"choir.dev/choiros/internal/view"
)

func mcpAdd() cli.Verb {
	var in view.NewMCPServer
	var secrets []string
	return cli.Verb{
		Use: "add NAME [-- CMD…]", Short: "Add a server of the Model Context Protocol, whose tools tasks may use once you approve them", Args: cli.Between(1, -1), JSON: view.MCPServer{},
		Long: `The command runs in a box of its own, which sees no files and reaches no host unless that is
said here; with --url the server is one elsewhere. Nothing is started, and no task uses anything of
it, before tools of it are approved. Secrets are named, not given: choir secrets set SECRET.`,
		Examples: []string{"choir mcp add memory --egress registry.npmjs.org:443 -- npx -y @modelcontextprotocol/server-memory",
			"choir mcp add tickets --url https://tickets.example.org/mcp --bearer TICKETS_TOKEN", "choir mcp add lint --files --secret KEY=LINT_KEY -- lint-mcp"},
		Ready: func(args []string) error {
			if (len(args) == 1) == (in.URL == "") {
				return cli.Usage(errors.New("give a command behind --, or --url, and not both"))
			}
			return nil
		},
		Asks: func(ctx context.Context, t *cli.Call, c *client.Client, args []string) error {
			req := rpc.AddMCPServerRequest{Body: in}
			req.Body.Name, req.Body.Command = args[0], args[1:]
			for _, given := range secrets {
				variable, secret, ok := strings.Cut(given, "=")
				if !ok {
					secret = variable
				}
				req.Body.Secrets = append(req.Body.Secrets, view.MCPSecret{Variable: variable, Secret: secret})
			}
			s, err := client.Call(ctx, c, rpc.MCPServerAdd, req)
			if err != nil {
				return err
			}
			return t.Show(s, func(w io.Writer) {
				terminal.Row(w, "added", s.ID, "see what it offers: choir mcp show "+s.ID)
			})
		},
		Flags: func(f *pflag.FlagSet) {
			f.StringVar(&in.URL, "url", "", "the `URL`, https, of a server elsewhere")
			f.StringVar(&in.Bearer, "bearer", "", "the `SECRET` that requests to the URL carry")
			f.StringArrayVar(&in.Egress, "egress", nil, "a `HOST:PORT` that the command may reach; may be given often")
			f.StringArrayVar(&secrets, "secret", nil, "a `VARIABLE=SECRET` for the command's environment; may be given often")
			f.BoolVar(&in.Files, "files", false, "the command sees the computer's files, read-only")
		},
	}
}

func mcpList() cli.Verb {
	return cli.Verb{
		Use: "list", Short: "List the servers that were added, and what is approved of their tools", Args: cli.Exactly(0), JSON: []view.MCPServer{},
		Examples: []string{"choir mcp list"},
		Asks: func(ctx context.Context, t *cli.Call, c *client.Client, _ []string) error {
			all, err := client.Call(ctx, c, rpc.MCPServerList, rpc.Of{})
			if err != nil {
				return err
			}
			return t.Show(cli.List(all.Items), func(w io.Writer) {
				for _, s := range all.Items {
					says := approvedOf(s)
					if s.Waiting > 0 {
						says += fmt.Sprintf(", %d changed: choir mcp show %s", s.Waiting, s.ID)
					}
					terminal.Row(w, s.ID, terminal.OneLine(whereOf(s), 80), says)
				}
			})
		},
	}
}

// approvedOf names what of a server tasks may use.
func approvedOf(s view.MCPServer) string {
	var names []string
	for _, t := range s.Tools {
		if t.State == view.MCPToolApproved {
			names = append(names, t.ID)
		}
	}
	if len(names) == 0 {
		return "none approved"
	}
	return "approved: " + terminal.OneLine(strings.Join(names, ", "), 300)
}

func whereOf(s view.MCPServer) string {
	if s.URL != "" {
		return s.URL
	}
	return strings.Join(s.Command, " ")
}

func mcpShow() cli.Verb {
	return cli.Verb{
		Use: "show SERVER", Short: "Show a server, and all that it offers now, for which it is started", Args: cli.Exactly(1), JSON: view.MCPServer{},
		Examples: []string{"choir mcp show memory", "choir mcp show memory --json"},
		Asks: func(ctx context.Context, t *cli.Call, c *client.Client, args []string) error {
			s, err := client.Call(ctx, c, rpc.MCPServerShow, rpc.OnMCPServer{Server: args[0]})
			if err != nil {
				return err
			}
			return t.Show(s, func(w io.Writer) { printMCPServer(w, s) })
		},
	}
}

func printMCPServer(w io.Writer, s view.MCPServer) {
	terminal.Row(w, "server", s.ID, terminal.OneLine(whereOf(s), 300))
	if len(s.Egress) > 0 {
		terminal.Row(w, "reaches", terminal.OneLine(strings.Join(s.Egress, ", "), 300))
	}
	for _, g := range s.Secrets {
		terminal.Row(w, "has", terminal.OneLine(g.Variable+" from the secret "+g.Secret, 300))
	}
	if s.Files {
		terminal.Row(w, "sees", "the computer's files, read-only")
	}
	for _, t := range s.Tools {
		printMCPTool(w, t)
	}
}

func printMCPTool(w io.Writer, t view.MCPTool) {
	says := string(t.State)
	if t.Reason != "" {
		says += ": " + terminal.OneLine(t.Reason, 300)
	}
	terminal.Row(w, "tool", terminal.OneLine(t.ID, 128), says)
	if t.Description != "" {
		terminal.Row(w, "", terminal.OneLine(t.Description, 4096))
		terminal.Row(w, "", terminal.OneLine(string(t.Schema), 16<<10))
	}
	if t.SaysReads {
		terminal.Row(w, "", "it says that it only reads")
	}
}

func mcpApprove() cli.Verb {
	var reads, yes bool
	return cli.Verb{
		Use: "approve SERVER [TOOL…]", Short: "Approve tools of a server as they are now, or all that it offers; tasks may use them", Args: cli.Between(1, -1), JSON: view.MCPServer{},
		Long: `It shows what is approved and asks, unless --yes is given. What a call of such a tool does can't
be undone, and nobody is asked before one. A tool that becomes another one is not used until it is
approved again.`,
		Examples: []string{"choir mcp approve memory", "choir mcp approve memory read_graph --reads --yes"},
		Asks: func(ctx context.Context, t *cli.Call, c *client.Client, args []string) error {
			s, err := client.Call(ctx, c, rpc.MCPServerShow, rpc.OnMCPServer{Server: args[0]})
			if err != nil {
				return err
			}
			req := rpc.ApproveMCPRequest{OnMCPServer: rpc.OnMCPServer{Server: args[0]}}
			var shown []view.MCPTool
			for _, name := range args[1:] {
				i := slices.IndexFunc(s.Tools, func(t view.MCPTool) bool { return t.ID == name })
				if i < 0 {
					return fault.New("mcp approve", fault.NotFound, "See what it offers with: choir mcp show "+s.ID, fmt.Errorf("%s offers no %q", s.ID, terminal.OneLine(name, 60)))
				}
				shown = append(shown, s.Tools[i])
			}
			if len(args) == 1 {
				shown = slices.DeleteFunc(slices.Clone(s.Tools), func(t view.MCPTool) bool {
					return t.State == view.MCPToolRefused || t.State == view.MCPToolApproved
				})
			}
			if len(shown) == 0 {
				return t.Show(s, func(w io.Writer) { terminal.Row(w, "nothing waits", s.ID) })
			}
			for _, tool := range shown {
				req.Body.Tools = append(req.Body.Tools, view.MCPApproval{Tool: tool.ID, Digest: tool.Digest, Reads: reads})
			}
			if !yes {
				if err := agreed(s.ID, shown); err != nil {
					return err
				}
			}
			got, err := client.Call(ctx, c, rpc.MCPServerApprove, req)
			if err != nil {
				return err
			}
			return t.Show(got, func(w io.Writer) {
				for _, tool := range shown {
					terminal.Row(w, "approved", terminal.OneLine(tool.ID, 128), tool.As)
				}
			})
		},
		Flags: func(f *pflag.FlagSet) {
			f.BoolVar(&reads, "reads", false, "believe the server that they only read")
			f.BoolVar(&yes, "yes", false, "do not ask")
		},
	}
}

// agreed shows what is to be approved and asks whoever sits at the terminal.
func agreed(server string, tools []view.MCPTool) error {
	if !term.IsTerminal(int(os.Stdin.Fd())) {
		return cli.Usage(errors.New("nobody is here to be asked; look with choir mcp show " + server + ", then give --yes"))
	}
	if err := terminal.Table(os.Stderr, func(w io.Writer) {
		for _, t := range tools {
			printMCPTool(w, t)
		}
	}); err != nil {
		return err
	}
	fmt.Fprintf(os.Stderr, "Approve %d tools of %s? [y/N] ", len(tools), server)
	line, err := bufio.NewReader(io.LimitReader(os.Stdin, 100)).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	if !strings.EqualFold(strings.TrimSpace(line), "y") {
		return fault.New("mcp approve", fault.Cancelled, "", errors.New("nothing was approved"))
	}
	return nil
}

func mcpRevoke() cli.Verb {
	return cli.Verb{
		Use: "revoke SERVER TOOL…", Short: "Take the approval of tools back: no task uses them any more", Args: cli.Between(2, -1), JSON: view.MCPServer{},
		Examples: []string{"choir mcp revoke memory create_entities"},
		Asks: func(ctx context.Context, t *cli.Call, c *client.Client, args []string) error {
			req := rpc.RevokeMCPRequest{OnMCPServer: rpc.OnMCPServer{Server: args[0]}}
			req.Body.Tools = args[1:]
			s, err := client.Call(ctx, c, rpc.MCPServerRevoke, req)
			if err != nil {
				return err
			}
			return t.Show(s, func(w io.Writer) { terminal.Row(w, "revoked", terminal.OneLine(strings.Join(args[1:], ", "), 300)) })
		},
	}
}

func mcpRemove() cli.Verb {
	return cli.Verb{
		Use: "remove SERVER", Short: "Remove a server with all that was approved of it, and end it", Args: cli.Exactly(1), JSON: removed{},
		Examples: []string{"choir mcp remove memory"},
		Asks: func(ctx context.Context, t *cli.Call, c *client.Client, args []string) error {
			if _, err := client.Call(ctx, c, rpc.MCPServerRemove, rpc.OnMCPServer{Server: args[0]}); err != nil {
				return err
			}
			return t.Show(removed{args[0], true}, func(w io.Writer) { terminal.Row(w, "removed", args[0]) })
		},
	}
}
