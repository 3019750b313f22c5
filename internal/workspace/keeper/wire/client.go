package wire

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"

	"choir.dev/choiros/internal/fault"
)

// Keeper speaks to the engine in the keeper box. Call posts JSON to
// /keeper/{verb}; Stream posts a body to /keeper/stream/{verb} and returns the
// answer's bytes. The answers come from a box: callers validate what they use.
type Keeper interface {
	Call(ctx context.Context, verb string, in, out any) error
	Stream(ctx context.Context, verb string, query any, body io.Reader) (*http.Response, error)
}

// maxAnswer bounds a JSON answer of the keeper, in bytes.
const maxAnswer = 96 << 20

// StillHeader carries, in a request, the name of the period in which only the keeper could
// write to the live tree. If the name differs from the last one, or is missing, somebody
// else could write in between.
const StillHeader = "X-Choir-Still"

// WritersWatched is the value of StillHeader while others can write, each of them only to the
// directories and files of the live tree itself and through the same kernel as the keeper:
// no box has an overlay above the tree, or can mount one.
const WritersWatched = "writers-watched"

// WatchesHeader says, in a request, how many inotify watches the keeper may have, and in
// the answer how many it has: the process that runs the keepers of several computers adds
// them up.
const WatchesHeader = "X-Choir-Watches"

// AnsweredHeader says, in an answer, when it was given, by the keeper's clock. The next
// request repeats it, so that the keeper knows that what the request says about writers was
// determined after that time. It means nothing to anybody else.
const AnsweredHeader = "X-Choir-Answered"

// maxAnswered limits the length of the value that is repeated.
const maxAnswered = 64

// NewClient returns a Keeper over a transport that ends at the engine's handler, such as
// the keeper box's tether. still returns the value of StillHeader for each call; if it is
// nil, the header is never sent.
func NewClient(rt http.RoundTripper, still func() string) Keeper {
	if still == nil {
		still = func() string { return "" }
	}
	return &client{http: http.Client{Transport: rt}, still: still}
}

type client struct {
	http     http.Client
	still    func() string
	answered atomic.Pointer[string] // the AnsweredHeader of the last answer
}

// Call implements Keeper.
func (c *client) Call(ctx context.Context, verb string, in, out any) error {
	op := "keeper " + verb
	raw, err := json.Marshal(in)
	if err != nil {
		return fault.Wrap(op, err)
	}
	resp, err := c.post(ctx, op, "/keeper/"+verb, bytes.NewReader(raw))
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	return fault.Wrap(op, Decode(resp.Body, out))
}

// smallBody is the size up to which a body is sent with a known length and in one piece
// with the request's header. A larger one is streamed.
const smallBody = 12 << 10

// Stream implements Keeper; the caller closes the response's body.
func (c *client) Stream(ctx context.Context, verb string, query any, body io.Reader) (*http.Response, error) {
	op := "keeper " + verb
	raw, err := json.Marshal(query)
	if err != nil {
		return nil, fault.Wrap(op, err)
	}
	path := "/keeper/stream/" + verb + "?q=" + url.QueryEscape(string(raw))
	if body == nil {
		return c.post(ctx, op, path, nil)
	}
	begin := bytes.NewBuffer(make([]byte, 0, smallBody+bytes.MinRead))
	if _, err := begin.ReadFrom(io.LimitReader(body, smallBody+1)); err != nil {
		return nil, fault.Wrap(op, cmp.Or(ctx.Err(), err)) // the sender ended it, perhaps in the middle
	}
	if begin.Len() <= smallBody {
		return c.post(ctx, op, path, begin)
	}
	sent := &sent{content: io.MultiReader(begin, body)}
	resp, err := c.post(ctx, op, path, sent)
	if failed := sent.failed.Load(); err != nil && failed != nil && ctx.Err() == nil {
		return nil, fault.Wrap(op, *failed) // the sender ended it, not the keeper
	}
	return resp, err
}

func (c *client) post(ctx context.Context, op, path string, body io.Reader) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://keeper"+path, body)
	if err != nil {
		return nil, fault.Wrap(op, err)
	}
	if at := c.answered.Load(); at != nil { // before still is called
		req.Header.Set(AnsweredHeader, *at)
	}
	if still := c.still(); still != "" {
		req.Header.Set(StillHeader, still)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		if ctx.Err() != nil {
			return nil, fault.Wrap(op, ctx.Err())
		}
		return nil, fault.New(op, fault.Unavailable, "Try again in a moment; the workspace's keeper is being restarted.", err)
	}
	if at := resp.Header.Get(AnsweredHeader); at != "" && len(at) <= maxAnswered {
		c.answered.Store(&at)
	}
	if resp.StatusCode == http.StatusOK {
		return resp, nil
	}
	defer resp.Body.Close()
	var e Error
	raw, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	if err == nil {
		err = json.Unmarshal(raw, &e)
	}
	if err != nil || e.Message == "" {
		return nil, fault.New(op, fault.Internal, "", errors.Join(fmt.Errorf("the keeper answered %s", resp.Status), err))
	}
	return nil, fault.New("", e.Code, strings.ToValidUTF8(e.Hint, "\uFFFD"), errors.New(strings.ToValidUTF8(e.Message, "\uFFFD")))
}

// sent records why the request's body could not be read to its end.
type sent struct {
	content io.Reader
	failed  atomic.Pointer[error]
}

func (s *sent) Read(p []byte) (int, error) {
	n, err := s.content.Read(p)
	if err != nil && err != io.EOF {
		s.failed.Store(&err)
	}
	return n, err
}

// Decode decodes an answer of the keeper, whose size is bounded, into out.
func Decode(r io.Reader, out any) error {
	raw, err := io.ReadAll(io.LimitReader(r, maxAnswer+1))
	if err != nil {
		return err
	}
	if len(raw) > maxAnswer {
		return fault.New("", fault.Exhausted, "", fmt.Errorf("the keeper's answer has more than %d bytes", maxAnswer))
	}
	if out == nil {
		return nil
	}
	return json.Unmarshal(raw, out)
}
