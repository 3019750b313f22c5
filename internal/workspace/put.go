package workspace

import (
	"cmp"
	"context"
	"errors"
	"io"
	"sync"
)

// maxPuts is how many puts are received at once. Each has a request of the keeper's under way,
// also while it waits for its turn, and whoever has the turn needs requests of its own.
const maxPuts = 64

// put is the content of a file that is written. The turn to change something is taken when the
// content has been read to its end, before whoever reads it knows that it ended: who sends it
// slowly, or not at all, keeps nobody waiting.
type put struct {
	workspace *Workspace
	content   io.Reader
	ctx       context.Context
	cancel    context.CancelFunc

	mu      sync.Mutex // held while the turn is waited for
	over    bool
	release func(*error) // nil before the turn is taken
	err     error        // why it could not be taken
}

// receive waits until content may be received; its caller calls end.
func (w *Workspace) receive(ctx context.Context, content io.Reader) (*put, error) {
	select {
	case w.puts <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	p := &put{workspace: w, content: content}
	p.ctx, p.cancel = context.WithCancel(ctx)
	return p, nil
}

func (p *put) Read(b []byte) (int, error) {
	n, err := p.content.Read(b)
	if !errors.Is(err, io.EOF) {
		return n, err
	}
	if n > 0 {
		return n, nil // the next call is told the end
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.over {
		return 0, context.Canceled
	}
	if p.release == nil && p.err == nil {
		p.release, p.err = p.workspace.take(p.ctx)
	}
	return 0, cmp.Or(p.err, io.EOF)
}

// taken reports whether this put has the turn.
func (p *put) taken() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.release != nil
}

// end gives the turn to the next one, with what came of the put.
func (p *put) end(err *error) {
	p.cancel() // nothing reads the content any more, unless the keeper answered before its end
	p.mu.Lock()
	defer p.mu.Unlock()
	p.over = true
	if p.release != nil {
		p.release(err)
	}
	<-p.workspace.puts
}
