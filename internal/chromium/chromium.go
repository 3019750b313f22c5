// Package chromium drives a headless Chromium over its debugging pipe, to test what only a
// real browser can show: how soon a desktop has painted, and whether an attack by a page
// works.
package chromium

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// ErrMissing is returned if there is no Chromium.
var ErrMissing = errors.New("no Chromium is installed")

// Browser is a headless Chromium and its debugging pipe, which carries JSON messages that
// end with a NUL. One goroutine may use it at a time.
type Browser struct {
	cmd      *exec.Cmd
	out      *os.File
	messages chan message
	ended    chan struct{}
	profile  string
	id       int
	session  string // of the page
}

type message struct {
	ID     int             `json:"id"`
	Result json.RawMessage `json:"result"`
	Error  *struct {
		Message string `json:"message"`
	} `json:"error"`
}

// Open starts Chromium with a new profile in dir, and with further arguments.
func Open(dir string, more ...string) (_ *Browser, err error) {
	path := ""
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if path, err = exec.LookPath(name); err == nil {
			break
		}
	}
	if path == "" {
		return nil, ErrMissing
	}
	in, out, err := os.Pipe() // commands
	if err != nil {
		return nil, err
	}
	defer in.Close()
	back, answers, err := os.Pipe()
	if err != nil {
		return nil, errors.Join(err, out.Close())
	}
	defer answers.Close()
	b := &Browser{out: out, messages: make(chan message, 64), ended: make(chan struct{}), profile: filepath.Join(dir, "profile")}
	args := []string{"--headless=new", "--remote-debugging-pipe", "--user-data-dir=" + b.profile, "--no-first-run", "--disable-gpu", "--disable-dev-shm-usage",
		"--disable-background-networking", "--disable-component-update", "--disable-extensions", "--window-size=1280,800", "--no-proxy-server"}
	if os.Geteuid() == 0 {
		args = append(args, "--no-sandbox") // Chromium refuses to sandbox for root; it opens our own pages only
	}
	b.cmd = exec.Command(path, append(append(args, more...), "about:blank")...)
	b.cmd.ExtraFiles = []*os.File{in, answers} // descriptors 3 and 4
	b.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := b.cmd.Start(); err != nil {
		return nil, errors.Join(err, out.Close(), back.Close())
	}
	go b.read(back)
	return b, nil
}

// read ends when the browser does, which Close waits for.
func (b *Browser) read(back *os.File) {
	defer close(b.ended)
	defer close(b.messages)
	defer back.Close()
	r := bufio.NewReader(back)
	for {
		raw, err := r.ReadBytes(0)
		if err != nil {
			return
		}
		var m message
		if json.Unmarshal(raw[:len(raw)-1], &m) == nil && m.ID != 0 {
			b.messages <- m // at most one answer is awaited
		}
	}
}

// Close ends the browser with all its processes.
func (b *Browser) Close() error {
	err := syscall.Kill(-b.cmd.Process.Pid, syscall.SIGKILL)
	if errors.Is(err, syscall.ESRCH) {
		err = nil
	}
	_ = b.cmd.Wait() // it was killed
	err = errors.Join(err, b.out.Close())
	<-b.ended
	return err
}

// PID is the browser's own process.
func (b *Browser) PID() int { return b.cmd.Process.Pid }

// Call sends a command to the page, or to the browser if none is attached, and waits for
// its answer.
func (b *Browser) Call(ctx context.Context, method string, params map[string]any, out any) error {
	b.id++
	request := map[string]any{"id": b.id, "method": method, "params": params}
	if b.session != "" {
		request["sessionId"] = b.session
	}
	raw, err := json.Marshal(request)
	if err != nil {
		return err
	}
	if _, err := b.out.Write(append(raw, 0)); err != nil {
		return err
	}
	for {
		select {
		case m, ok := <-b.messages:
			switch {
			case !ok:
				return errors.New("the browser ended")
			case m.ID != b.id:
				continue
			case m.Error != nil:
				return fmt.Errorf("%s: %s", method, m.Error.Message)
			case out != nil:
				return json.Unmarshal(m.Result, out)
			}
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Page opens a page in a profile of its own and attaches to it; leave closes both.
func (b *Browser) Page(ctx context.Context) (leave func(context.Context) error, err error) {
	var profile struct {
		ID string `json:"browserContextId"`
	}
	if err := b.Call(ctx, "Target.createBrowserContext", nil, &profile); err != nil {
		return nil, err
	}
	if err := b.attach(ctx, profile.ID); err != nil {
		return nil, err
	}
	return func(ctx context.Context) error {
		b.session = ""
		return b.Call(ctx, "Target.disposeBrowserContext", map[string]any{"browserContextId": profile.ID}, nil)
	}, nil
}

// attach opens a page in a profile; later calls go to it.
func (b *Browser) attach(ctx context.Context, profile string) error {
	var created struct {
		ID string `json:"targetId"`
	}
	if err := b.Call(ctx, "Target.createTarget", map[string]any{"url": "about:blank", "browserContextId": profile}, &created); err != nil {
		return err
	}
	var attached struct {
		ID string `json:"sessionId"`
	}
	if err := b.Call(ctx, "Target.attachToTarget", map[string]any{"targetId": created.ID, "flatten": true}, &attached); err != nil {
		return err
	}
	b.session = attached.ID
	return nil
}

// ErrNoFrame is returned if the page has no such frame.
var ErrNoFrame = errors.New("the page has no such frame in a process of its own")

// Frame attaches to a frame of the page that is in a process of its own, found by the
// beginning of its address; back attaches to the page again.
func (b *Browser) Frame(ctx context.Context, address string) (back func(), err error) {
	page := b.session
	var self struct {
		Target struct {
			Profile string `json:"browserContextId"`
		} `json:"targetInfo"`
	}
	if err := b.Call(ctx, "Target.getTargetInfo", nil, &self); err != nil {
		return nil, err
	}
	b.session = ""
	frame, err := b.frame(ctx, self.Target.Profile, address)
	if err != nil {
		b.session = page
		return nil, err
	}
	b.session = frame
	return func() { b.session = page }, nil
}

// frame attaches to one of a profile's frames and returns the session with it.
func (b *Browser) frame(ctx context.Context, profile, address string) (string, error) {
	var all struct {
		Targets []struct {
			ID      string `json:"targetId"`
			URL     string `json:"url"`
			Profile string `json:"browserContextId"`
		} `json:"targetInfos"`
	}
	if err := b.Call(ctx, "Target.getTargets", map[string]any{"filter": []map[string]any{{"type": "iframe"}}}, &all); err != nil {
		return "", err
	}
	for _, t := range all.Targets {
		if t.Profile != profile || !strings.HasPrefix(t.URL, address) {
			continue
		}
		var attached struct {
			ID string `json:"sessionId"`
		}
		err := b.Call(ctx, "Target.attachToTarget", map[string]any{"targetId": t.ID, "flatten": true}, &attached)
		return attached.ID, err
	}
	return "", ErrNoFrame
}

// Until evaluates an expression in the page repeatedly until it is true. While a page is
// being replaced it can't be evaluated, which is no error.
func (b *Browser) Until(ctx context.Context, expression string) error {
	var last error
	for {
		var answer struct {
			Result struct {
				Value bool `json:"value"`
			} `json:"result"`
		}
		last = b.Call(ctx, "Runtime.evaluate", map[string]any{"expression": expression, "returnByValue": true}, &answer)
		if answer.Result.Value {
			return nil
		}
		select {
		case <-time.After(4 * time.Millisecond):
		case <-b.ended:
			return errors.New("the browser ended")
		case <-ctx.Done():
			return errors.Join(fmt.Errorf("the page never came to %s: %w", expression, ctx.Err()), last)
		}
	}
}

// Evaluate runs an expression in the page, waits for its promise, and decodes the result.
// With gesture it runs as if the user had just clicked.
func (b *Browser) Evaluate(ctx context.Context, expression string, gesture bool, out any) error {
	var answer struct {
		Result struct {
			Value json.RawMessage `json:"value"`
		} `json:"result"`
		Exception *struct {
			Text      string `json:"text"`
			Exception struct {
				Description string `json:"description"`
			} `json:"exception"`
		} `json:"exceptionDetails"`
	}
	err := b.Call(ctx, "Runtime.evaluate", map[string]any{"expression": expression, "returnByValue": true, "awaitPromise": true, "userGesture": gesture}, &answer)
	switch {
	case err != nil:
		return err
	case answer.Exception != nil:
		return fmt.Errorf("%s: %s", answer.Exception.Text, answer.Exception.Exception.Description)
	case out == nil:
		return nil
	}
	return json.Unmarshal(answer.Result.Value, out)
}

// Click presses and releases the mouse at a position of the page, in whichever frame is
// there.
func (b *Browser) Click(ctx context.Context, x, y float64) error {
	for _, kind := range []string{"mousePressed", "mouseReleased"} {
		// A frame that disappears under the pointer never answers; the caller checks the
		// effect of the click.
		answered, cancel := context.WithTimeout(ctx, 2*time.Second)
		err := b.Call(answered, "Input.dispatchMouseEvent", map[string]any{"type": kind, "x": x, "y": y, "button": "left", "clickCount": 1}, nil)
		cancel()
		if err != nil && (ctx.Err() != nil || !errors.Is(err, context.DeadlineExceeded)) {
			return err
		}
	}
	return nil
}

// Cookie is a cookie in a page's profile.
type Cookie struct {
	Name     string `json:"name"`
	Value    string `json:"value"`
	Domain   string `json:"domain,omitempty"`
	URL      string `json:"url,omitempty"` // the page that sets it, when it is set
	Path     string `json:"path,omitempty"`
	Secure   bool   `json:"secure"`
	HTTPOnly bool   `json:"httpOnly"`
	SameSite string `json:"sameSite,omitempty"`
}

// SetCookies puts cookies into the page's profile.
func (b *Browser) SetCookies(ctx context.Context, cookies ...Cookie) error {
	return b.Call(ctx, "Network.setCookies", map[string]any{"cookies": cookies}, nil)
}

// Cookies returns the cookies of the page's profile for an address.
func (b *Browser) Cookies(ctx context.Context, url string) ([]Cookie, error) {
	var out struct {
		Cookies []Cookie `json:"cookies"`
	}
	err := b.Call(ctx, "Network.getCookies", map[string]any{"urls": []string{url}}, &out)
	return out.Cookies, err
}
