package loops

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/dispatch/ports"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/harness"
	"choir.dev/choiros/internal/tool"
	"choir.dev/choiros/internal/tool/boxtools"
)

// MaxResult bounds the answer of a box's tool, in bytes.
const MaxResult = 4 << 20

// CallTool has a box's guest carry out a tool. base is the commit that the box's tree started from.
func CallTool(ctx context.Context, box ports.Box, name string, args json.RawMessage, base string) (tool.Result, error) {
	var res tool.Result
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://box/tools/"+name, bytes.NewReader(args))
	if err != nil {
		return res, err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set(boxtools.HeaderBase, base)
	resp, err := box.Transport().RoundTrip(req)
	if err != nil {
		return res, Because(ctx, fmt.Errorf("box %s gave no answer to %s: %w", box.ID(), name, err))
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(io.LimitReader(resp.Body, MaxResult+1))
	if err != nil || len(b) > MaxResult {
		return res, Because(ctx, fmt.Errorf("the answer of box %s could not be read: %w", box.ID(), cmp.Or(err, errors.New("too long"))))
	}
	// The box may run agents' code, so its answer is bounded and decoded, and used only as this tool's
	// output.
	if err := contract.DecodeStrict(b, MaxResult, &res); err != nil {
		return res, fault.New("dispatch.tool", fault.Unavailable, "", fmt.Errorf("box %s answered %s: %w", box.ID(), resp.Status, err))
	}
	if resp.StatusCode >= 500 {
		return res, fault.New("dispatch.tool", fault.Unavailable, "", fmt.Errorf("box %s: %s", box.ID(), harness.Clip(res.Output, 500)))
	}
	if len(res.Images) > 0 { // only the host names what it kept, which may be anything of the computer
		return res, fault.New("dispatch.tool", fault.Unavailable, "", fmt.Errorf("box %s names pictures of the host", box.ID()))
	}
	return res, nil
}
