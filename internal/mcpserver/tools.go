package mcpserver

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/awake"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/rpc"
	"choir.dev/choiros/internal/view"
)

// Limits of the tools that are written by hand.
const (
	maxWait     = 600              // seconds that prompt waits
	waitStep    = 10               // seconds between two words about how a run goes on
	maxPut      = 1 << 20          // bytes of a file that is written
	maxOutput   = 32 << 10         // bytes of each of a command's streams
	commandTime = 2 * time.Minute  // of a command, unless it asks for more
	commandMost = 10 * time.Minute // of any
)

// byHand adds the tools whose methods are streams over HTTP, and prompt, which waits.
func (t tools) byHand(s *mcp.Server) {
	no, yes := false, true
	for _, h := range []struct {
		takes contract.Capability
		tool  mcp.Tool
		do    func(context.Context, call) (any, error)
	}{
		{contract.CanPrompt, mcp.Tool{
			Name: "prompt", Annotations: &mcp.ToolAnnotations{Title: "Submit an intention; it causes a run", DestructiveHint: &yes, OpenWorldHint: &yes},
			Description: "Have the computer do something: what you want, in words. It answers with the run's id at once, or with wait (seconds) when the run has ended or asks something. Cancelling this call ends the waiting, not the run: run_cancel does.",
			InputSchema: object(`"text":{"type":"string","minLength":1,"maxLength":32768},"model":{"type":"string","maxLength":200,"description":"provider/model or an alias; empty: the default"},`+
				`"id":{"type":"string","description":"UUIDv7 drawn by the caller; the same id again is the same prompt"},`+
				`"continues":{"type":"string","maxLength":36,"description":"the id of an ended run that this one is told of and goes on from; nothing that was granted to it is carried over"},`+
				`"route":{"type":"string","enum":["plan","direct"],"description":"plan: a Director plans it; direct: it goes to one Associate at once; without: a small prompt goes to one Associate"},`+
				`"effort":{"type":"string","enum":["none","low","medium","high"],"description":"how much the run's models think, where they can be told"},"review":{"type":"boolean","description":"a person looks at what it makes before it is published; it waits for them"},"wait":{"type":"integer","minimum":0,"maximum":600,"description":"seconds"}`, "text"),
		}, t.prompt},
		{contract.CanRead, mcp.Tool{
			Name: "files_read", Annotations: &mcp.ToolAnnotations{Title: "Read a text file", ReadOnlyHint: true, IdempotentHint: true, OpenWorldHint: &no},
			Description: "Read a text file of the workspace, or a part of it. Its version is what files_write takes as only.",
			InputSchema: object(pathProperty+`,"offset":{"type":"integer","minimum":0,"description":"bytes"},"limit":{"type":"integer","minimum":1,"maximum":65536,"description":"bytes"}`, "path"),
		}, t.read},
		{contract.CanWrite, mcp.Tool{
			Name: "files_write", Annotations: &mcp.ToolAnnotations{Title: "Replace or make a text file", DestructiveHint: &yes, IdempotentHint: true, OpenWorldHint: &no},
			Description: "Replace or make a text file of the workspace, at most 1 MiB. With only, nothing is changed unless the file has this version still; only none makes a new file only.",
			InputSchema: object(pathProperty+`,"content":{"type":"string"},"only":{"type":"string","maxLength":200},"executable":{"type":"boolean"}`, "path", "content"),
		}, t.write},
		{contract.CanExec, mcp.Tool{
			Name: "exec", Annotations: &mcp.ToolAnnotations{Title: "Run a command on the live tree", DestructiveHint: &yes, OpenWorldHint: &yes},
			Description: "Run a command in a box on the live tree, with a checkpoint before and after it. Its output is cut in the middle beyond 32 KiB. Cancelling the call ends the command.",
			InputSchema: object(`"argv":{"type":"array","items":{"type":"string"},"minItems":1,"maxItems":1000},"cwd":{"type":"string","maxLength":4096},"timeout_s":{"type":"integer","minimum":1,"maximum":600}`, "argv"),
		}, t.exec},
	} {
		if t.Can(h.takes) {
			s.AddTool(&h.tool, handler(h.do))
		}
	}
}

const pathProperty = `"path":{"type":"string","minLength":1,"maxLength":4096,"description":"relative to the workspace's root"}`

func object(properties string, required ...string) json.RawMessage {
	return json.RawMessage(`{"type":"object","additionalProperties":false,"required":["` + strings.Join(required, `","`) + `"],"properties":{` + properties + `}}`)
}

func decode[T any](args json.RawMessage) (in T, err error) {
	if err := contract.DecodeStrict(args, 2*maxPut, &in); err != nil {
		if contract.AsFieldError(err) != nil {
			return in, err
		}
		return in, &contract.FieldError{Field: "arguments", Reason: err.Error()}
	}
	return in, nil
}

// prompt submits a prompt and, if it is asked to, waits for its run.
func (t tools) prompt(ctx context.Context, c call) (any, error) {
	in, err := decode[struct {
		Text      string          `json:"text"`
		Model     string          `json:"model"`
		ID        string          `json:"id"`
		Continues string          `json:"continues"`
		Route     contract.Route  `json:"route"`
		Effort    contract.Effort `json:"effort"`
		Review    bool            `json:"review"`
		Wait      int             `json:"wait"`
	}](c.args)
	if err != nil {
		return nil, err
	}
	if in.Wait < 0 || in.Wait > maxWait {
		return nil, &contract.FieldError{Field: "wait", Reason: fmt.Sprintf("must be 0 to %d seconds", maxWait)}
	}
	request, err := json.Marshal(view.Prompt{ID: in.ID, Text: in.Text, Model: in.Model, Continues: in.Continues, Route: in.Route, Effort: in.Effort, Review: in.Review})
	if err != nil {
		return nil, err
	}
	answer, err := t.ask(ctx, c, rpc.PromptSubmit, request)
	if err != nil || in.Wait == 0 {
		return answer, err
	}
	var acted view.Acted
	if err := json.Unmarshal(answer, &acted); err != nil {
		return nil, err
	}
	if !t.Can(contract.CanRead) {
		return answer, nil // whoever may not look can't wait
	}
	for left := in.Wait; ; left -= waitStep {
		request := fmt.Appendf(nil, `{"run":%q,"wait":%d}`, acted.Run, max(1, min(left, waitStep)))
		answer, err := t.ask(ctx, c, rpc.RunShow, request)
		if err != nil {
			return nil, err
		}
		var r view.Run
		if err := rpc.Decode(bytes.NewReader(answer), &r); err != nil {
			return nil, err
		}
		if left <= waitStep || r.Status.Ended() || r.Status == contract.RunWaiting && len(r.Questions)+len(r.Approvals)+len(r.Reviews) > 0 {
			return answer, nil
		}
		c.told(ctx, float64(in.Wait-left+waitStep), fmt.Sprintf("%s: %s", r.Status, contract.Clip(r.Objective, 200)))
	}
}

// read reads a part of a text file.
func (t tools) read(ctx context.Context, c call) (any, error) {
	in, err := decode[struct {
		Path   string `json:"path"`
		Offset int64  `json:"offset"`
		Limit  int64  `json:"limit"`
	}](c.args)
	if err != nil {
		return nil, err
	}
	if in.Limit <= 0 || in.Limit > maxFile {
		in.Limit = maxFile
	}
	if in.Offset < 0 {
		return nil, &contract.FieldError{Field: "offset", Reason: "is negative"}
	}
	part, err := t.content(ctx, c.header, in.Path, in.Offset, in.Limit)
	return part, err
}

// content is a part of a file.
type content struct {
	Path    string `json:"path"`
	Version string `json:"version,omitempty"`
	Size    int64  `json:"size"`
	Offset  int64  `json:"offset"`
	More    bool   `json:"more"`
	Content string `json:"content"`
}

func (t tools) content(ctx context.Context, header http.Header, path string, offset, limit int64) (content, error) {
	request := rpc.OnPath{Path: path}
	if err := request.Validate(); err != nil {
		return content{}, err
	}
	r, err := rpc.FilesGet.Request(t.Computer, request)
	if err != nil {
		return content{}, err
	}
	if offset > 0 {
		r.Header.Set("Range", fmt.Sprintf("bytes=%d-%d", offset, offset+limit-1))
	}
	res, err := t.Send(ctx, header, r, nil, "")
	if err != nil {
		return content{}, err
	}
	b, err := io.ReadAll(io.LimitReader(res.Body, limit))
	if err = errors.Join(err, res.Body.Close()); err != nil {
		return content{}, fault.New("mcpserver.read", fault.Unreachable, "Try again.", err)
	}
	if res.StatusCode/100 != 2 {
		return content{}, problem(res.StatusCode, b)
	}
	out := content{Path: path, Version: strings.Trim(res.Header.Get("ETag"), `"`), Offset: offset, Size: res.ContentLength}
	if _, whole, ok := strings.Cut(res.Header.Get("Content-Range"), "/"); ok {
		if out.Size, err = strconv.ParseInt(whole, 10, 64); err != nil {
			return content{}, err
		}
	}
	// A part may end within a character: what is left of it comes with the next part.
	for cut := 0; cut < utf8.UTFMax-1 && len(b) > 0 && !utf8.Valid(b) && offset+int64(len(b)) < out.Size; cut++ {
		b = b[:len(b)-1]
	}
	if !utf8.Valid(b) || bytes.ContainsRune(b, 0) {
		return content{}, fault.New("", fault.Invalid, "Fetch it with choir files get.", fmt.Errorf("%s is no text (%d bytes)", path, out.Size))
	}
	out.Content, out.More = string(b), offset+int64(len(b)) < out.Size
	return out, nil
}

// write replaces or makes a file.
func (t tools) write(ctx context.Context, c call) (any, error) {
	in, err := decode[struct {
		Path       string `json:"path"`
		Content    string `json:"content"`
		Only       string `json:"only"`
		Executable *bool  `json:"executable"`
	}](c.args)
	if err != nil {
		return nil, err
	}
	if len(in.Content) > maxPut {
		return nil, &contract.FieldError{Field: "content", Reason: fmt.Sprintf("is longer than %d bytes", maxPut)}
	}
	put := rpc.PutRequest{OnPath: rpc.OnPath{Path: in.Path}, Conditions: rpc.OnlyOn(in.Only)}
	if in.Only == "none" {
		put.Conditions = rpc.OnlyOn(view.NoVersion)
	}
	if in.Executable != nil {
		put.Mode = map[bool]string{true: "0755", false: "0644"}[*in.Executable]
	}
	if err := put.Validate(); err != nil {
		return nil, err
	}
	r, err := rpc.FilesPut.Request(t.Computer, put)
	if err != nil {
		return nil, err
	}
	_, b, err := t.whole(ctx, c.header, r, strings.NewReader(in.Content), "application/octet-stream")
	return json.RawMessage(b), err
}

// executed is how a command ended.
type executed struct {
	view.Exit
	Stdout string `json:"stdout"`
	Stderr string `json:"stderr"`
	Cut    bool   `json:"truncated,omitempty"`
}

// errTime is the cause of a command's end when its time is used up.
var errTime = errors.New("the time of the command is up")

// exec runs a command.
func (t tools) exec(ctx context.Context, c call) (any, error) {
	in, err := decode[struct {
		Argv    []string `json:"argv"`
		Cwd     string   `json:"cwd"`
		Timeout int      `json:"timeout_s"`
	}](c.args)
	if err != nil {
		return nil, err
	}
	limit := commandTime
	if in.Timeout > 0 {
		limit = min(time.Duration(in.Timeout)*time.Second, commandMost)
	}
	ctx, cancel := awake.WithTimeoutCause(ctx, limit, errTime)
	defer cancel()
	line, err := json.Marshal(view.ExecRequest{Argv: in.Argv, Cwd: in.Cwd})
	if err != nil {
		return nil, err
	}
	r, err := rpc.ExecHTTP.Request(t.Computer, rpc.Of{})
	if err != nil {
		return nil, err
	}
	res, err := t.Send(ctx, c.header, r, bytes.NewReader(append(line, '\n')), "application/x-ndjson")
	if err != nil {
		return nil, err
	}
	out, err := ended(res)
	if cause := context.Cause(ctx); cause != nil {
		err = fault.New("", fault.Timeout, "Give it more with timeout_s.", cause)
	}
	return out, errors.Join(err, res.Body.Close())
}

// ended reads a command's frames up to its end.
func ended(res *http.Response) (out executed, err error) {
	if res.StatusCode/100 != 2 {
		b, err := io.ReadAll(io.LimitReader(res.Body, maxAnswer))
		if err != nil {
			return out, err
		}
		return out, problem(res.StatusCode, b)
	}
	from := bufio.NewReaderSize(res.Body, view.MaxFrame)
	var buf []byte
	var stdout, stderr ends
	for {
		kind, payload, err := view.ReadFrame(from, buf)
		if err != nil {
			return out, fault.New("", fault.Unreachable, "Look at choir events for how the command ended.", errors.New("the connection ended before the command did"))
		}
		buf = payload[:0]
		switch kind {
		case view.FrameStdout:
			stdout.Write(payload)
		case view.FrameStderr:
			stderr.Write(payload)
		case view.FrameFailed:
			return out, problem(http.StatusOK, payload)
		case view.FrameExited:
			err := rpc.Decode(bytes.NewReader(payload), &out.Exit)
			out.Stdout, out.Stderr, out.Cut = stdout.String(), stderr.String(), stdout.cut() || stderr.cut()
			return out, err
		}
	}
}

// ends keeps the beginning and the end of what is written to it.
type ends struct {
	head, tail []byte
	all        int
}

func (e *ends) Write(p []byte) {
	e.all += len(p)
	n := min(len(p), maxOutput/2-len(e.head))
	e.head = append(e.head, p[:n]...)
	if e.tail = append(e.tail, p[n:]...); len(e.tail) > maxOutput {
		e.tail = append(e.tail[:0], e.tail[len(e.tail)-maxOutput/2:]...)
	}
}

func (e *ends) cut() bool { return e.all > len(e.head)+len(e.tail) }

func (e *ends) String() string {
	text := string(e.head) + string(e.tail)
	if e.cut() {
		text = string(e.head) + fmt.Sprintf("\n… %d bytes left out …\n", e.all-len(e.head)-len(e.tail)) + string(e.tail)
	}
	return strings.ToValidUTF8(text, "\uFFFD")
}
