package harness

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/defence"
)

// history is what was said, in order. It only grows, so that each request begins as the one before did, until a
// compaction puts a summary in the place of its older turns.
type history struct {
	opening   string   // the first message
	compacted string   // what stands behind it in the place of turns, if any do
	turns     []Record // that are sent
	heard     []string // everything that was told, those of turns no longer sent included
}

// Recorded is a turn as the log has it. The attempt is the host's to add.
func (r Record) Recorded() contract.TurnRecorded {
	return contract.TurnRecorded{Index: r.Index, Told: r.Told, Message: r.Message, Stop: r.Stop, Returns: r.Returns, Usage: r.Usage, Compacted: r.Compacted}
}

// History converts recorded turns back: the newest record of each turn counts.
func History(turns []contract.TurnRecorded) []Record {
	at := map[int]int{}
	var out []Record
	for _, t := range turns {
		r := Record{Index: t.Index, Told: t.Told, Message: t.Message, Stop: t.Stop, Returns: t.Returns, Usage: t.Usage, Compacted: t.Compacted}
		if i, ok := at[t.Index]; ok {
			out[i] = r
			continue
		}
		at[t.Index] = len(out)
		out = append(out, r)
	}
	return out
}

// restore takes up what was recorded before.
func (l *loop) restore(records []Record) {
	for _, r := range records {
		l.index = max(l.index, r.Index+1)
		for _, c := range calls(r.Message) {
			l.ids[c.ID] = true
		}
		if r.Compacted != nil {
			l.past.compact(*r.Compacted)
			continue
		}
		l.reconsider(r)
		if len(l.past.turns) == 0 && r.Index == 0 {
			l.past.opening = r.Told
			_, r.Told, _ = strings.Cut(r.Told, since)
			l.past.tell(r.Told)
			r.Told = ""
		}
		l.past.tell(r.Told)
		l.past.turns = append(l.past.turns, r)
	}
}

// reconsider counts a recorded turn as it was counted when it was made, so that the next request tells what it would
// have told then, and a loop that had ended ends.
func (l *loop) reconsider(r Record) {
	cs := calls(r.Message)
	if len(r.Message.Parts) == 0 || len(cs) > 0 && r.Returns == nil {
		return // it is not sent, or was cut short
	}
	l.notes, l.stopWith, l.ended = nil, "", Outcome{}
	if t := textOf(r.Message); t != "" {
		l.lastText = t
	}
	for _, c := range cs {
		if ret, ok := returned(r, c.ID); ok {
			l.repeated(c, Return{Content: ret.Content, Images: ret.Images, IsError: ret.IsError, End: c.Name == l.EndTool && !ret.IsError}, true)
		}
	}
	l.ended = l.judge(r, false)
}

// close answers the calls of recorded turns that have no returns, and records that: a loop that was interrupted
// between a model's answer and its returns first finishes that turn, however often it was interrupted.
func (l *loop) close(ctx context.Context) error {
	if defence.Off(defence.LoopReturns) {
		return nil
	}
	for i := range l.past.turns {
		t := &l.past.turns[i]
		if t.Returns != nil || len(calls(t.Message)) == 0 {
			continue
		}
		t.Returns, t.Usage.ToolCalls = []contract.Message{lost(t.Message)}, len(calls(t.Message))
		if err := l.record(ctx, *t); err != nil {
			return err
		}
	}
	return nil
}

func (h *history) tell(text string) {
	if text != "" {
		h.heard = append(h.heard, text)
	}
}

// told reports whether a text is the newest that was told under its first line.
func (h *history) told(text string) bool {
	head, _, _ := strings.Cut(text, "\n")
	for _, t := range slices.Backward(h.heard) {
		if at := strings.LastIndex(t, head); at >= 0 {
			return strings.HasPrefix(t[at:], text)
		}
	}
	return false
}

// compact leaves the turns before c.Keeps out.
func (h *history) compact(c contract.Compaction) {
	h.compacted = c.Text
	h.turns = slices.DeleteFunc(h.turns, func(t Record) bool { return t.Index < c.Keeps })
}

// messages are what a request sends, with told at their end.
func (h *history) messages(turns []Record, limit int, told string) []contract.Message {
	first := contract.Message{Role: contract.MessageUser, Parts: []contract.Part{{Text: h.opening}}}
	if h.compacted != "" {
		first.Parts = append(first.Parts, contract.Part{Text: h.compacted})
	}
	out := []contract.Message{first}
	say := func(text string) {
		last := &out[len(out)-1]
		switch {
		case last.Role == contract.MessageUser && text != "":
			last.Parts = append(slices.Clip(slices.Clone(last.Parts)), contract.Part{Text: text})
		case last.Role == contract.MessageAssistant:
			if text == "" {
				text = goOn
			}
			out = append(out, contract.Message{Role: contract.MessageUser, Parts: []contract.Part{{Text: text}}})
		}
	}
	for _, t := range turns {
		say(t.Told)
		t = fit(t, limit)
		out = append(out, t.Message)
		for _, m := range t.Returns {
			if len(m.Parts) > 0 {
				out = append(out, m)
			}
		}
	}
	say(told)
	return out
}

// goOn is said where a model has to be answered and there is nothing to say.
const goOn = "Go on."

// size is how many bytes of a request the history makes up.
func (h *history) size(limit int) int {
	n := len(h.opening) + len(h.compacted)
	for _, t := range h.turns {
		n += len(t.Told) + sizeOf(fit(t, limit))
	}
	return n
}

// lost answers the calls of a turn whose returns were not recorded.
func lost(m contract.Message) contract.Message {
	out := contract.Message{Role: contract.MessageUser}
	for _, c := range calls(m) {
		out.Parts = append(out.Parts, contract.Part{Return: &contract.ToolReturn{ID: c.ID, IsError: true,
			Content: "Unknown: the computer was restarted before this call's outcome was recorded. It may or may not have happened; look before you repeat it."}})
	}
	return out
}

// fit bounds one turn to limit bytes, always in the same way, so that a single turn never makes a request that
// no model takes. Within the limit nothing of it is changed.
func fit(t Record, limit int) Record {
	if sizeOf(t) <= limit {
		return t
	}
	n := max(1, len(t.Message.Parts))
	argsMax, retMax := limit/(4*n), limit/(2*n)
	cut := func(m contract.Message) contract.Message {
		parts := make([]contract.Part, len(m.Parts))
		for i, p := range m.Parts {
			switch {
			case p.Call != nil && len(p.Call.Args) > argsMax:
				c := *p.Call
				c.Args = fmt.Appendf(nil, `{"left_out":"%d bytes"}`, len(c.Args))
				p.Call = &c
			case p.Return != nil && len(p.Return.Content) > retMax:
				r := *p.Return
				r.Content = Clip(r.Content, retMax)
				p.Return = &r
			case len(p.Text) > retMax:
				p.Text = Clip(p.Text, retMax)
			}
			parts[i] = p
		}
		return contract.Message{Role: m.Role, Parts: parts}
	}
	out := t
	out.Message, out.Returns = cut(t.Message), nil
	for _, m := range t.Returns {
		out.Returns = append(out.Returns, cut(m))
	}
	return out
}

func sizeOf(t Record) int {
	n := sizeOfMessage(t.Message)
	for _, m := range t.Returns {
		n += sizeOfMessage(m)
	}
	return n
}

// pictureBytes is as what length of text a picture counts: services make some 1,600 tokens of a large one.
const pictureBytes = 4800

func sizeOfMessage(m contract.Message) int {
	n := 0
	for _, p := range m.Parts {
		n += len(p.Text) + 64
		switch {
		case p.Call != nil:
			n += len(p.Call.Args) + len(p.Call.Name)
		case p.Return != nil:
			n += len(p.Return.Content) + pictureBytes*len(p.Return.Images)
		case p.Image != nil:
			n += pictureBytes
		case p.Reasoning != nil:
			n += len(p.Reasoning.Text) + len(p.Reasoning.Opaque)
		}
	}
	return n
}

func returned(t Record, id string) (contract.ToolReturn, bool) {
	for _, m := range t.Returns {
		for _, p := range m.Parts {
			if p.Return != nil && p.Return.ID == id {
				return *p.Return, true
			}
		}
	}
	return contract.ToolReturn{}, false
}

// digest is a turn in one line: what was called and whether it succeeded.
func digest(t Record) string {
	failed := map[string]bool{}
	for _, m := range t.Returns {
		for _, p := range m.Parts {
			if p.Return != nil {
				failed[p.Return.ID] = p.Return.IsError
			}
		}
	}
	var parts []string
	for _, c := range calls(t.Message) {
		word := "ok"
		if failed[c.ID] {
			word = "error"
		}
		parts = append(parts, fmt.Sprintf("%s %s → %s", c.Name, oneLine(string(c.Args), 120), word))
	}
	if len(parts) == 0 {
		parts = append(parts, oneLine(textOf(t.Message), 160))
	}
	return oneLine(fmt.Sprintf("turn %d: %s", t.Index+1, strings.Join(parts, "; ")), 400)
}

func oneLine(s string, max int) string {
	s = strings.Join(strings.Fields(s), " ")
	if len(s) > max {
		s = contract.Clip(s, max) + "…"
	}
	return s
}
