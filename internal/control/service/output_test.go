package service

import (
	"context"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"pgregory.net/rapid"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/rpc"
)

// TestOutputKeepsCharactersWhole shows that however output is cut into writes, its pieces make up
// the whole text, in order, with consecutive numbers.
func TestOutputKeepsCharactersWhole(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		pieces := rapid.SliceOfN(rapid.SampledFrom([]string{"a", "ä", "€", "😀", "\xff", "\xe2\x82", "\n", strings.Repeat("€", 9000)}), 0, 20).Draw(t, "pieces")
		whole := strings.Join(pieces, "")
		cmd := newCommand(contract.NewID(), rpc.Caller{}, func() {})
		cmd.readAt = time.Time{} // no client reads
		out := &output{cmd, "stdout", nil, context.Background(), limiter()}
		for rest := whole; len(rest) > 0; {
			n := min(len(rest), rapid.IntRange(1, 40000).Draw(t, "write"))
			if got, err := out.Write([]byte(rest[:n])); err != nil || got != n {
				t.Fatal(got, err)
			}
			rest = rest[n:]
		}
		out.flush()
		var text strings.Builder
		for i, k := range cmd.chunks {
			if k.Number != int64(i) || !utf8.ValidString(k.Text) || len(k.Text) > 3*maxChunk {
				t.Fatalf("chunk %d is number %d, %d bytes", i, k.Number, len(k.Text))
			}
			text.WriteString(k.Text)
		}
		if want := string([]rune(whole)); text.String() != want {
			t.Fatalf("%d bytes became %d", len(want), text.Len())
		}
	})
}

func TestOldOutputIsDroppedAndSaidSo(t *testing.T) {
	cmd := newCommand(contract.NewID(), rpc.Caller{}, func() {})
	cmd.readAt = time.Time{} // no client reads
	out := &output{cmd, "stdout", nil, context.Background(), limiter()}
	if _, err := out.Write([]byte(strings.Repeat("x", 2*keptOutput))); err != nil {
		t.Fatal(err)
	}
	if cmd.size > keptOutput || !cmd.dropped || cmd.chunks[0].Number == 0 {
		t.Errorf("%d bytes are kept, dropped %v, from %d", cmd.size, cmd.dropped, cmd.chunks[0].Number)
	}
}

// TestAttack48_OutputWaitsForItsReader shows that a command gets no further ahead of its reader
// than its window, and continues when the reader has read more or has gone.
func TestAttack48_OutputWaitsForItsReader(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	cmd := newCommand(contract.NewID(), rpc.Caller{}, cancel)
	out := &output{cmd, "stdout", nil, ctx, limiter()}
	ended := make(chan error, 1)
	go func() {
		for {
			if _, err := out.Write([]byte(strings.Repeat("y\n", 8<<10))); err != nil {
				ended <- err
				return
			}
		}
	}()
	// A client reads but has not asked again, so the command stops.
	cmd.after(-1)
	for deadline := time.After(300 * time.Millisecond); ; {
		cmd.mu.Lock()
		moved, sent := cmd.moved, cmd.sent
		cmd.mu.Unlock()
		if sent > 2*window {
			t.Fatalf("it went on to %d bytes that nobody had read", sent)
		}
		select {
		case <-moved:
			continue
		case <-deadline:
		}
		break
	}
	after, got := int64(-1), 0
	for got < 8*window {
		a, moved := cmd.after(after)
		for _, k := range a.Chunks {
			after, got = k.Number, got+len(k.Text)
		}
		cmd.mu.Lock()
		ahead := cmd.sent - cmd.read
		cmd.mu.Unlock()
		if ahead > window+maxPart+2*maxChunk {
			t.Fatalf("%d bytes ahead of the reader", ahead)
		}
		if a.Truncated {
			t.Fatal("what a reader had not read was dropped")
		}
		if len(a.Chunks) == 0 {
			<-moved
		}
	}
	cancel()
	if err := <-ended; err == nil {
		t.Error("it can't be stopped while it waits")
	}
}
