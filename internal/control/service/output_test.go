package service

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/bus"
)

// Whatever way output is cut into writes, the text is that of the whole, in
// order, with dense numbers.
func TestOutputKeepsCharactersWhole(t *testing.T) {
	b, err := bus.Open(context.Background(), bus.Options{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	}()
	s := &Services{o: Options{Bus: b}, log: slog.New(slog.DiscardHandler)}
	s.commands.init(s)
	rapid.Check(t, func(t *rapid.T) {
		pieces := rapid.SliceOfN(rapid.SampledFrom([]string{"a", "ä", "€", "😀", "\xff", "\xe2\x82", "\n", strings.Repeat("€", 9000)}), 0, 20).Draw(t, "pieces")
		whole := strings.Join(pieces, "")
		cmd := &command{id: contract.NewID()}
		out := &output{&s.commands, contract.NewCID(), cmd, "stdout", nil, context.Background(), limiter()}
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
			if k.N != int64(i) || !utf8.ValidString(k.Text) || len(k.Text) > 3*maxChunk {
				t.Fatalf("chunk %d is number %d, %d bytes", i, k.N, len(k.Text))
			}
			text.WriteString(k.Text)
		}
		if want := string([]rune(whole)); text.String() != want {
			t.Fatalf("%d bytes became %d", len(want), text.Len())
		}
	})
}

func TestOldOutputIsDroppedAndSaidSo(t *testing.T) {
	b, err := bus.Open(context.Background(), bus.Options{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	}()
	s := &Services{o: Options{Bus: b}, log: slog.New(slog.DiscardHandler)}
	s.commands.init(s)
	cmd := &command{id: contract.NewID()}
	out := &output{&s.commands, contract.NewCID(), cmd, "stdout", nil, context.Background(), limiter()}
	if _, err := out.Write([]byte(strings.Repeat("x", 2*keptOutput))); err != nil {
		t.Fatal(err)
	}
	if cmd.size > keptOutput || !cmd.dropped || cmd.chunks[0].N == 0 {
		t.Errorf("%d bytes are kept, dropped %v, from %d", cmd.size, cmd.dropped, cmd.chunks[0].N)
	}
}

func TestAnswersFit(t *testing.T) {
	big := make([]contract.Change, 20000)
	for i := range big {
		big[i] = contract.Change{Path: strings.Repeat("p", 100), Op: contract.ChangeModified}
	}
	list, cut, err := fit(big)
	if err != nil || !cut || len(list) == 0 || len(list) == len(big) {
		t.Errorf("%d, %v, %v", len(list), cut, err)
	}
}
