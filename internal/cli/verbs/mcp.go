package verbs

import (
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"slices"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/cli"
	"choir.dev/choiros/internal/client"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/mcpserver"
	"choir.dev/choiros/internal/rpc"
)

// MCP is choir mcp.
func MCP(version string) cli.Verb {
	return cli.Verb{
		Use: "mcp", Short: "Offer the computer to a program of models on this machine, over the Model Context Protocol", Args: cli.Exactly(0),
		Raw: "messages of the protocol, one a line",
		Long: `It speaks on standard input and output, for programs that start the servers they use, and ends
with its input. It may what CHOIR_TOKEN was made for, and without one what the owner of the
instance may, whose token lies beside the data: give a program a token of its own.`,
		Examples: []string{"choir mcp", `CHOIR_TOKEN="$(cat token)" choir mcp --computer COMPUTER`},
		Asks: func(ctx context.Context, _ *cli.Call, c *client.Client, _ []string) error {
			may, err := c.Account(ctx)
			if fault.Is(err, fault.Denied) && !client.NotSignedIn(err) { // a token that may not even read is offered what it asks for, and refused by the API
				_, err = c.Health(ctx)
			}
			if err != nil {
				return err
			}
			server, err := mcpserver.New(mcpserver.Options{
				Computer: c.Named(), Version: version,
				Can: func(k contract.Capability) bool { return len(may.May) == 0 || slices.Contains(may.May, k) },
				Send: func(ctx context.Context, _ http.Header, call rpc.Request, body io.Reader, content string) (*http.Response, error) {
					return c.Send(ctx, call, body, content)
				},
			})
			if err != nil {
				return err
			}
			err = server.Run(ctx, &mcp.IOTransport{Reader: os.Stdin, Writer: os.Stdout})
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		},
		Verbs: []cli.Verb{mcpAdd(), mcpList(), mcpShow(), mcpApprove(), mcpRevoke(), mcpRemove()},
	}
}
