package bench

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"
)

// browser is a headless Chromium, spoken to over its debugging pipe: JSON
// messages that end with a NUL.
type browser struct {
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

// openBrowser starts Chromium with a new profile.
func openBrowser(dir string) (_ *browser, err error) {
	path := ""
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if path, err = exec.LookPath(name); err == nil {
			break
		}
	}
	if path == "" {
		return nil, missingError{"Chromium is not installed"}
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
	b := &browser{out: out, messages: make(chan message, 64), ended: make(chan struct{}), profile: filepath.Join(dir, "profile")}
	args := []string{"--headless=new", "--remote-debugging-pipe", "--user-data-dir=" + b.profile, "--no-first-run", "--disable-gpu", "--disable-dev-shm-usage",
		"--disable-background-networking", "--disable-component-update", "--disable-extensions", "--window-size=1280,800", "--no-proxy-server"}
	if os.Geteuid() == 0 {
		args = append(args, "--no-sandbox") // Chromium refuses to sandbox for root; it opens our own pages only
	}
	b.cmd = exec.Command(path, append(args, "about:blank")...)
	b.cmd.ExtraFiles = []*os.File{in, answers} // descriptors 3 and 4
	b.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := b.cmd.Start(); err != nil {
		return nil, errors.Join(err, out.Close(), back.Close())
	}
	go b.read(back)
	return b, nil
}

// read ends when the browser does, which Close waits for.
func (b *browser) read(back *os.File) {
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
			b.messages <- m // at most one is awaited
		}
	}
}

// Close ends the browser with all its processes.
func (b *browser) Close() error {
	err := syscall.Kill(-b.cmd.Process.Pid, syscall.SIGKILL)
	if errors.Is(err, syscall.ESRCH) {
		err = nil
	}
	_ = b.cmd.Wait() // it was killed
	err = errors.Join(err, b.out.Close())
	<-b.ended
	return err
}

// call sends a command and waits for its answer.
func (b *browser) call(ctx context.Context, method string, params map[string]any, out any) error {
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

// profilePage opens a page in a profile of its own and speaks to it until leave
// drops both.
func (b *browser) profilePage(ctx context.Context) (leave func() error, err error) {
	var profile struct {
		ID string `json:"browserContextId"`
	}
	if err := b.call(ctx, "Target.createBrowserContext", nil, &profile); err != nil {
		return nil, err
	}
	var created struct {
		ID string `json:"targetId"`
	}
	if err := b.call(ctx, "Target.createTarget", map[string]any{"url": "about:blank", "browserContextId": profile.ID}, &created); err != nil {
		return nil, err
	}
	var attached struct {
		ID string `json:"sessionId"`
	}
	if err := b.call(ctx, "Target.attachToTarget", map[string]any{"targetId": created.ID, "flatten": true}, &attached); err != nil {
		return nil, err
	}
	b.session = attached.ID
	return func() error {
		b.session = ""
		return b.call(ctx, "Target.disposeBrowserContext", map[string]any{"browserContextId": profile.ID}, nil)
	}, nil
}

// until evaluates an expression in the page, again and again, until it is true.
// While a page is being replaced there is nothing to ask, which is no error.
func (b *browser) until(ctx context.Context, expression string) error {
	var last error
	for {
		var answer struct {
			Result struct {
				Value bool `json:"value"`
			} `json:"result"`
		}
		last = b.call(ctx, "Runtime.evaluate", map[string]any{"expression": expression, "returnByValue": true}, &answer)
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

const (
	// pressClaim is true once it has pressed the button of the claim page.
	pressClaim = `(() => { const go = document.getElementById('go'), name = document.getElementById('name');
		if (document.readyState !== 'complete' || !go || !name || go.disabled || document.getElementById('fresh').hidden) return false;
		name.value = 'Bench'; go.click(); return true })()`
	// isPainted is true once the console was told that the desktop has painted.
	isPainted = `!!document.querySelector('iframe[data-role=shown][data-mode]')`
)

// painted has a browser wait that runs already, starts the binary on a new data
// directory, opens its link and presses the button at once.
func painted(ctx context.Context, e *env) (_ []Result, err error) {
	b, err := openBrowser(e.dir)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, b.Close()) }()
	var ours, healthy times
	for i := range e.rounds(5, 3, 20*time.Second) {
		if err := e.paint(ctx, b, filepath.Join(e.dir, fmt.Sprint("data", i)), &ours, &healthy); err != nil {
			return nil, err
		}
		if i == 0 && !e.Tiny { // Chromium is still busy with its own start
			ours, healthy = nil, nil
		}
	}
	return []Result{{ID: "painted", What: "choir up to painted desktop", Ours: &Quantity{ours.p50().Seconds(), "s"}, Target: atMost(ofOurs, 2, "s"),
		Note: fmt.Sprintf("New data directory; a headless Chromium that runs already opens the link in a new profile, presses the button at once, and the console is told that the desktop has painted. Of it %s until healthy.", healthy.ms())}}, nil
}

func (e *env) paint(ctx context.Context, b *browser, data string, ours, healthy *times) (err error) {
	ctx, cancel := context.WithTimeout(ctx, 40*time.Second)
	defer cancel()
	if err := e.shareModules(data); err != nil {
		return err
	}
	leave, err := b.profilePage(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, leave()) }()
	if err := errors.Join(b.until(ctx, "true"), e.quiet(ctx, b.cmd.Process.Pid)); err != nil {
		return err
	}
	p, err := e.up(ctx, data)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.Close()) }()
	if err := b.call(ctx, "Page.navigate", map[string]any{"url": p.ClaimURL}, nil); err != nil {
		return err
	}
	if err := errors.Join(b.until(ctx, pressClaim), b.until(ctx, isPainted)); err != nil {
		return err
	}
	*ours, *healthy = append(*ours, time.Since(p.began)), append(*healthy, p.healthy)
	return nil
}
