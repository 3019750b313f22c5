package mcpserver

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/rpc"
	"choir.dev/choiros/internal/supervise"
	"choir.dev/choiros/internal/view"
)

// Where resources are.
const (
	documentURI = "choir://document/"
	fileURI     = "choir://file/"
)

// resources adds documents and files, to be read only.
func (t tools) resources(s *mcp.Server) {
	s.AddResourceTemplate(&mcp.ResourceTemplate{Name: "document", Title: "A living document", URITemplate: documentURI + "{id}", MIMEType: "text/markdown",
		Description: "The newest revision; runs say which document is theirs."}, t.resource(t.document))
	s.AddResourceTemplate(&mcp.ResourceTemplate{Name: "file", Title: "A text file of the workspace", URITemplate: fileURI + "{+path}", MIMEType: "text/plain",
		Description: "Its first 64 KiB; files_read reads on."}, t.resource(t.file))
}

func (t tools) resource(read func(ctx context.Context, header http.Header, uri string) (mcp.ResourceContents, error)) mcp.ResourceHandler {
	return func(ctx context.Context, req *mcp.ReadResourceRequest) (*mcp.ReadResourceResult, error) {
		var header http.Header
		if req.Extra != nil {
			header = req.Extra.Header
		}
		var c mcp.ResourceContents
		err := supervise.Safely(func() (err error) { // the protocol's library would let a panic end the process
			c, err = read(ctx, header, req.Params.URI)
			return err
		})
		if fault.Is(err, fault.NotFound) || contract.AsFieldError(err) != nil {
			return nil, mcp.ResourceNotFoundError(req.Params.URI)
		}
		if err != nil {
			return nil, err
		}
		c.URI = req.Params.URI
		return &mcp.ReadResourceResult{Contents: []*mcp.ResourceContents{&c}}, nil
	}
}

func (t tools) document(ctx context.Context, header http.Header, uri string) (mcp.ResourceContents, error) {
	request, err := json.Marshal(map[string]string{"document": strings.TrimPrefix(uri, documentURI)})
	if err != nil {
		return mcp.ResourceContents{}, err
	}
	b, err := t.ask(ctx, call{header: header}, rpc.DocumentGet, request)
	if err != nil {
		return mcp.ResourceContents{}, err
	}
	var d view.Document
	err = rpc.Decode(strings.NewReader(string(b)), &d)
	return mcp.ResourceContents{MIMEType: "text/markdown", Text: d.Body}, err
}

func (t tools) file(ctx context.Context, header http.Header, uri string) (mcp.ResourceContents, error) {
	path, err := url.PathUnescape(strings.TrimPrefix(uri, fileURI))
	if err != nil {
		return mcp.ResourceContents{}, &contract.FieldError{Field: "uri", Reason: "is no path"}
	}
	part, err := t.content(ctx, header, path, 0, maxFile)
	return mcp.ResourceContents{MIMEType: "text/plain", Text: part.Content}, err
}
