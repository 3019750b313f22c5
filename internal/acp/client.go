package acp

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"sync"
	"unicode"

	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/supervise"
)

// Version is the version of the protocol that is spoken.
const Version = 1

// Limits of a connection.
const (
	maxLine    = 8 << 20 // bytes of one message
	maxTraffic = 1 << 30 // bytes that a program may send in all
	maxLines   = 1 << 20 // messages that it may send in all
	maxWaiting = 256     // answers and requests that it has not read
	maxQuoted  = 200     // bytes of what it sent that an error quotes
)

// Options say what is done with what a program sends beside its answers.
type Options struct {
	// Update is told of each thing that the program reports, in order, one at a time; what it returns ends the
	// connection. While it works nothing is read.
	Update func(Update) error
}

// Conn is a connection to a program. Requests are made one at a time.
type Conn struct {
	options Options
	from    io.ReadCloser
	to      io.WriteCloser
	writes  chan []byte
	work    sync.WaitGroup

	once sync.Once
	done chan struct{} // closed with err set

	mu      sync.Mutex
	err     error
	next    int
	pending map[int]chan reply
	session string
}

// Connect begins to read what a program sends at from. Close has to be called.
func Connect(from io.ReadCloser, to io.WriteCloser, o Options) *Conn {
	c := &Conn{options: o, from: from, to: to, writes: make(chan []byte, maxWaiting), done: make(chan struct{}), pending: map[int]chan reply{}}
	c.work.Go(func() { c.end(supervise.Safely(c.read)) })
	c.work.Go(func() { c.end(supervise.Safely(c.write)) })
	return c
}

// Close ends the connection and waits for what it began.
func (c *Conn) Close() {
	c.end(errors.New("the connection was closed"))
	c.work.Wait()
}

// end ends the connection for a reason, of which the first counts.
func (c *Conn) end(why error) {
	c.once.Do(func() {
		c.mu.Lock()
		c.err = why
		c.mu.Unlock()
		close(c.done)
		_ = c.from.Close() // nothing is read or written any more, so neither's error tells anything
		_ = c.to.Close()
	})
}

// Err is why the connection has ended.
func (c *Conn) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

func (c *Conn) write() error {
	for {
		select {
		case line := <-c.writes:
			if _, err := c.to.Write(line); err != nil {
				// Where the program has ended, the reader knows how.
				<-c.done
				return err
			}
		case <-c.done:
			return nil
		}
	}
}

// message is a line of either side.
type message struct {
	JSONRPC string          `json:"jsonrpc"`
	ID      json.RawMessage `json:"id,omitempty"`
	Method  string          `json:"method,omitempty"`
	Params  json.RawMessage `json:"params,omitempty"`
	Result  json.RawMessage `json:"result,omitempty"`
	Error   *problem        `json:"error,omitempty"`
}

type problem struct {
	Code    int             `json:"code"`
	Message string          `json:"message"`
	Data    json.RawMessage `json:"data,omitempty"`
}

type reply struct {
	result json.RawMessage
	err    *problem
}

// send queues a message. A program that does not read what it asked for is ended.
func (c *Conn) send(m message) error {
	m.JSONRPC = "2.0"
	line, err := json.Marshal(m)
	if err != nil {
		return fault.New("acp", fault.Internal, "", err)
	}
	select {
	case c.writes <- append(line, '\n'):
		return nil
	case <-c.done:
		return c.Err()
	default:
		err := broken("it does not read what it is sent")
		c.end(err)
		return err
	}
}

// call makes a request and decodes its answer into out.
func (c *Conn) call(ctx context.Context, method string, params, out any) error {
	body, err := json.Marshal(params)
	if err != nil {
		return fault.New("acp", fault.Internal, "", err)
	}
	answer := make(chan reply, 1)
	c.mu.Lock()
	c.next++
	id := c.next
	c.pending[id] = answer
	c.mu.Unlock()
	if err := c.send(message{ID: json.RawMessage(strconv.Itoa(id)), Method: method, Params: body}); err != nil {
		return err
	}
	var r reply
	select {
	case r = <-answer:
	case <-c.done:
		select {
		case r = <-answer: // it answered, and then ended
		default:
			return c.Err()
		}
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if r.err != nil {
		return refused(method, r.err)
	}
	if err := json.Unmarshal(r.result, out); err != nil {
		return broken("its answer to %s is none: %s", method, quoted([]byte(err.Error())))
	}
	return nil
}

// broken is the error of a program that does not keep to the protocol.
func broken(format string, args ...any) error {
	return fault.New("acp", fault.Invalid, "See whether its command starts it as an agent of the Agent Client Protocol.", fmt.Errorf(format, args...))
}

// authRequired is the code of an error that says that somebody has to log in first.
const authRequired = -32000

func refused(method string, p *problem) error {
	said := quoted([]byte(p.Message))
	if detail := quoted(p.Data); len(p.Data) > 0 && detail != "{}" && detail != "null" {
		said += " " + detail
	}
	hint := ""
	if p.Code == authRequired {
		hint = "Configure it to use the model at ANTHROPIC_BASE_URL or OPENAI_BASE_URL of its box, with the key beside it: nobody can log in there."
	}
	return fault.New("acp", fault.Denied, hint, fmt.Errorf("it answers %s with the error %d: %s", method, p.Code, cmp.Or(said, "(no text)")))
}

// quoted is a piece of what a program sent, as one line.
func quoted(b []byte) string {
	s := strings.ToValidUTF8(string(b[:min(len(b), maxQuoted)]), "")
	s = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, s)
	if len(b) > maxQuoted {
		s += "…"
	}
	return strings.TrimSpace(s)
}

// read reads lines until the program ends or breaks the rules.
func (c *Conn) read() error {
	in := bufio.NewReaderSize(c.from, 64<<10)
	var line []byte
	traffic, lines := 0, 0
	for {
		part, err := in.ReadSlice('\n')
		traffic += len(part)
		if len(line)+len(part) > maxLine {
			return broken("it sends a line of more than %d bytes", maxLine)
		}
		if traffic > maxTraffic {
			return broken("it sends without end: more than %d bytes", maxTraffic)
		}
		line = append(line, part...)
		if errors.Is(err, bufio.ErrBufferFull) {
			continue
		}
		if err != nil {
			return err // an unfinished line is none
		}
		whole := bytes.TrimSpace(line)
		line = line[:0]
		if len(whole) == 0 {
			continue
		}
		if lines++; lines > maxLines {
			return broken("it sends without end: more than %d messages", maxLines)
		}
		if err := c.heard(whole); err != nil {
			return err
		}
	}
}

// heard takes one message of the program.
func (c *Conn) heard(line []byte) error {
	var m message
	if err := json.Unmarshal(line, &m); err != nil || m.JSONRPC != "2.0" {
		return broken("it sends what is no message of the protocol: %q", quoted(line))
	}
	id := bytes.TrimSpace(m.ID)
	if bytes.Equal(id, []byte("null")) {
		id = nil
	}
	switch {
	case m.Method == "":
		return c.answered(id, m)
	case len(id) == 0:
		return c.notified(m)
	case len(id) > 256 || id[0] != '"' && id[0] != '-' && (id[0] < '0' || id[0] > '9'):
		return broken("it asks with an id that is none: %q", quoted(id))
	}
	return c.asked(id, m)
}

func (c *Conn) answered(id []byte, m message) error {
	n, err := strconv.Atoi(string(id))
	c.mu.Lock()
	answer, ok := c.pending[n]
	delete(c.pending, n)
	c.mu.Unlock()
	if err != nil || !ok {
		return broken("it answers what was not asked, or twice: id %q", quoted(id))
	}
	answer <- reply{m.Result, m.Error}
	return nil
}

// notified takes a notification. Those that this client does not know are for others.
func (c *Conn) notified(m message) error {
	if m.Method != "session/update" {
		return nil
	}
	var p struct {
		Session string `json:"sessionId"`
		Update  update `json:"update"`
	}
	if err := json.Unmarshal(m.Params, &p); err != nil {
		return broken("it reports what is no update: %s", quoted([]byte(err.Error())))
	}
	c.mu.Lock()
	ours := p.Session == c.session
	c.mu.Unlock()
	u, ok := p.Update.read()
	if !ours || !ok || c.options.Update == nil {
		return nil
	}
	return c.options.Update(u)
}

// asked answers a request of the program. It may do in its box what it likes, so it is permitted what it asks
// to be permitted; there is nothing else to have.
func (c *Conn) asked(id []byte, m message) error {
	if m.Method != "session/request_permission" {
		return c.send(message{ID: id, Error: &problem{Code: -32601, Message: "this client offers no " + quoted([]byte(m.Method))}})
	}
	var p struct {
		Options []struct {
			ID   string `json:"optionId"`
			Kind string `json:"kind"`
		} `json:"options"`
	}
	if err := json.Unmarshal(m.Params, &p); err != nil {
		return broken("it asks for a permission in a way that is none: %s", quoted([]byte(err.Error())))
	}
	chosen := json.RawMessage(`{"outcome":{"outcome":"cancelled"}}`)
	for _, kind := range []string{"allow_always", "allow_once"} { // once is the less, so it is preferred
		for _, o := range p.Options {
			if o.Kind == kind {
				b, err := json.Marshal(map[string]any{"outcome": map[string]string{"outcome": "selected", "optionId": o.ID}})
				if err != nil {
					return fault.New("acp", fault.Internal, "", err)
				}
				chosen = b
				break
			}
		}
	}
	return c.send(message{ID: id, Result: chosen})
}
