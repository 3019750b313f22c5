package meanwhile_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"runtime"
	"strings"
	"testing"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/dispatch/meanwhile"
	"choir.dev/choiros/internal/fault"
)

// realLog decodes what an event carries, as ledger.Log does.
type realLog struct{ *story }

func (l *realLog) Payload(_ context.Context, e contract.Event) (contract.Payload, error) {
	p, err := contract.DecodeData(e.Type, e.Data)
	if err != nil {
		return nil, fault.New("ledger.Payload", fault.Invalid, "", err)
	}
	return p, nil
}

// TestWhatAFeedLetsGoOfIsReadAgain: a change is told although the feed forgets what it had of it while a loop reads.
func TestWhatAFeedLetsGoOfIsReadAgain(t *testing.T) {
	t.Parallel()
	s := &story{t: t}
	s.add("run.started", "", "", nil)
	s.checkpoint(strings.Repeat("a", 40), strings.Repeat("b", 40))
	s.put("a", contract.BlobRef("sha256:"+strings.Repeat("0", 64)))
	for i := range s.events {
		if s.data[i] != nil {
			b, err := json.Marshal(s.data[i])
			if err != nil {
				t.Fatal(err)
			}
			s.events[i].Data = b
		}
	}
	s.reads("a")
	hook := func() {}
	f := meanwhile.NewFeed(&realLog{s}, func(context.Context, string, string) ([]contract.Change, error) {
		hook()
		return nil, nil
	})
	watch := func(base string) *meanwhile.Watch {
		return meanwhile.New(meanwhile.Options{Feed: f, Task: "mine", Attempt: s.task.Now.Number, Base: base, After: 1, Logger: slog.New(slog.NewTextHandler(t.Output(), nil)),
			Contains: func(_ context.Context, _, paths, _ []string) ([][]bool, error) { return [][]bool{{true}}, nil }})
	}
	f.Begin(1)
	f.Add(1, s.events[1])
	f.Add(2, s.events[2])
	s.want(watch(strings.Repeat("a", 40)), "a") // its payloads are kept
	s.task.Outdated = nil
	hook = func() { f.Add(10, contract.Event{Sequence: 11, Type: "run.moved"}) } // somebody who began further on is the first to pass
	s.want(watch(strings.Repeat("c", 40)), "a")
}

// TestWhatIsInNoCheckpointHidesNothing: of files that no checkpoint holds nothing is told, and of a file behind many of them it is.
func TestWhatIsInNoCheckpointHidesNothing(t *testing.T) {
	t.Parallel()
	s := &story{t: t}
	s.checkpoint("base", "before")
	for i := range 2 * contract.MaxOutdated {
		p := fmt.Sprintf("ignored%d", i)
		s.reads(p)
		s.put(p, "")
	}
	s.reads("a")
	s.put("a", "")
	s.want(s.watch(), "a")
}

// TestAFileHasRoomAmongManyOthers: of a file that the loop works with it is told although ten thousand others changed before.
func TestAFileHasRoomAmongManyOthers(t *testing.T) {
	t.Parallel()
	s := &story{t: t}
	s.checkpoint("base", "before")
	s.changed = func(string, string) (out []contract.Change, _ error) {
		for i := range 10_000 {
			out = append(out, contract.Change{Path: fmt.Sprintf("vendor/%d", i), Op: contract.ChangeModified})
		}
		return out, nil
	}
	s.checkpoint("one", "base")
	s.reads("a")
	s.put("a", "")
	s.want(s.watch(), "a")
}

// TestWhatIsWrittenAgainAfterAnOwnPublishIsTold: also the content that was there before.
func TestWhatIsWrittenAgainAfterAnOwnPublishIsTold(t *testing.T) {
	t.Parallel()
	s := &story{t: t}
	s.reads("a")
	s.checkpoint("base", "before")
	s.put("a", "X")
	w := s.watch()
	s.want(w, "a")
	s.changed = func(string, string) ([]contract.Change, error) {
		return []contract.Change{{Path: "a", Op: contract.ChangeModified}}, nil
	}
	s.add("publish.started", "/computers/c/system", "mine", &contract.PublishStarted{Commit: "pub"})
	s.checkpoint("pub", "base")
	s.want(w)
	s.put("a", "X")
	s.want(w, "a")
}

// TestManyFilesAreAskedForInPieces: the workspace answers for 64 paths at once, and for none where one of them is no plain file.
func TestManyFilesAreAskedForInPieces(t *testing.T) {
	t.Parallel()
	s := &story{t: t}
	s.checkpoint("base", "before")
	var want []string
	for i := range 150 {
		p := fmt.Sprintf("f%03d", i)
		if i == 70 {
			p = "folder"
		} else {
			want = append(want, p)
		}
		s.reads(p)
		s.put(p, "")
	}
	f := meanwhile.NewFeed(s, nil)
	w := meanwhile.New(meanwhile.Options{Feed: f, Task: "mine", Base: "base", Logger: slog.New(slog.NewTextHandler(t.Output(), nil)),
		Contains: func(_ context.Context, _, paths, _ []string) ([][]bool, error) {
			if len(paths) > 64 {
				return nil, nil
			}
			has := make([]bool, len(paths))
			for i, p := range paths {
				if has[i] = true; p == "folder" {
					return nil, nil
				}
			}
			return [][]bool{has}, nil
		}})
	s.want(w, want...)
	s.want(w)
}

// TestTheNextAttemptIsNotToldOfTheTreeBefore: what watches an attempt that is over tells nothing.
func TestTheNextAttemptIsNotToldOfTheTreeBefore(t *testing.T) {
	t.Parallel()
	s := &story{t: t}
	s.checkpoint("base", "before")
	s.reads("a")
	w := s.watch()
	s.put("a", "")
	s.task.Now.Number++
	s.want(w)
}

// TestAFeedIsSmall: what events carry is not kept in memory.
func TestAFeedIsSmall(t *testing.T) {
	s := &story{t: t}
	f := meanwhile.NewFeed(s, nil)
	f.Begin(1)
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	for i := range 2000 {
		f.Add(uint64(i+1), contract.Event{Sequence: uint64(i + 2), Type: "document.revised", Data: json.RawMessage(strings.Repeat("x", 60<<10))})
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	if more := int64(after.HeapAlloc) - int64(before.HeapAlloc); more > 10<<20 {
		t.Errorf("2,000 events of 60 KiB take %d MB", more>>20)
	}
	runtime.KeepAlive(f)
}
