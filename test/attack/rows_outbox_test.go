package attack_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/desktop"
	"choir.dev/choiros/internal/chromium"
	"choir.dev/choiros/internal/defence"
)

// mark is the variable in which a page with edited source lists the defences that are off.
const mark = "missingDefences"

const outboxFile = "src/link/outbox.ts"

// sources are defences in the desktop's own source, which its user may edit. The program has no
// switches for them, so the suite edits the computer's files, and takes out those that are off.
var sources = map[defence.Name]script{
	defence.OutboxChecked: {outboxFile, "const fault = faultOf(action) ?? this.full(action)", "const fault = null as HostError | null"},
	defence.OutboxKept:    {outboxFile, "stuck: q.stuck || faultOf(q.action)?.message || ''", "stuck: q.stuck"},
	defence.OutboxTries:   {outboxFile, "++head.tries >= maxTries", "++head.tries >= 1e9"},
	defence.OutboxRefused: {outboxFile, "if (failure.passing) {", "if (true as boolean) {"},
	defence.OutboxRoom:    {outboxFile, "size: faultOf(q.action) ? 0 : sizeOf(q.action)", "size: sizeOf(q.action)"},
	defence.OutboxRead:    {outboxFile, "if (typeof action?.id !== 'string' || typeof action.type !== 'string') return []", "if (!action) return [k as Queued]"},
}

// quicker shortens the pause between the outbox's tries.
var quicker = script{outboxFile, "await this.pause(500)", "await this.pause(20)"}

// outboxRows are actions that could block all later ones. A valid action is queued behind each; the
// attack works if it does not reach the log.
var outboxRows = []Row{
	outbox("an oversized action that an older page left in the queue is sent for ever", planted("poison", written(1<<20)), defence.OutboxKept, defence.OutboxTries),
	outbox("an oversized action that an older page left takes the room of all that come later", planted("poison", written(1<<20)), defence.OutboxRoom),
	outbox("a malformed action in the queue, which the host refuses, is sent for ever", planted("poison", `{"type":"window.moved","id":"poison","data":{"window":5}}`), defence.OutboxRefused, defence.OutboxTries),
	outbox("what was kept and is no action keeps the queue from opening", planted("poison", "null"), defence.OutboxRead),
	outbox("a page queues an action of more than a message holds", func(t *testing.T, v *wholeVisitor) {
		v.desktopShows(t)
		v.inDesktop(t, "void globalThis.__choir.things.link.act('prompt.submitted', {text: 'x'.repeat(1 << 20)}, {id: 'poison'}).catch(() => {})")
	}, defence.OutboxChecked, defence.OutboxTries),
}

// written is a prompt of a given length.
func written(letters int) string {
	return fmt.Sprintf(`{"type":"prompt.submitted","id":"poison","data":{"text":"%s"}}`, strings.Repeat("x", letters))
}

// planted leaves an action with the console, as a page with another origin does.
func planted(item, action string) func(*testing.T, *wholeVisitor) {
	value := action
	if action != "null" {
		value = `{"action":` + action + `,"tries":0,"stuck":""}`
	}
	return func(t *testing.T, v *wholeVisitor) {
		v.open(t, v.console+"/claim") // no desktop is shown here
		v.eval(t, fmt.Sprintf("localStorage.setItem(%q, %q)", "choir.kept."+v.cid+".outbox."+item, value))
		v.desktopShows(t)
	}
}

// outbox makes a row of the desktop's queue: the function queue puts an invalid action into it, and
// then the desktop is shown.
func outbox(attack string, queue func(*testing.T, *wholeVisitor), defences ...defence.Name) Row {
	return Row{Number: 50, Attack: "in a whole computer's desktop: " + attack, Defences: defences, Whole: true, Lacks: lacksBrowser, Run: func(t *testing.T) Verdict {
		v := newWholeVisitor(t)
		v.edit(t, outboxFile)
		queue(t, v)
		fine := contract.NewID()
		v.inDesktop(t, fmt.Sprintf(`void globalThis.__choir.things.link.act('window.opened',
			{window: %q, app: 'help', title: 'Help', frame: {x: 0, y: 0, w: 300, h: 200}, state: 'normal'}, {id: %q}).then(() => {}, (e) => { globalThis.keptOut = e.message })`, v.dir(), fine))
		for {
			var is struct {
				State, Detail, KeptOut string
				Queued                 []struct {
					ID, Stuck string
					Tries     int
				}
			}
			text := v.inDesktop(t, `JSON.stringify((({state, detail, queued}) => ({state, detail, keptOut: globalThis.keptOut, queued: queued.map((q) => ({id: q.action.id, stuck: q.stuck, tries: q.tries}))}))(globalThis.__choir.stores.connection.getState()))`)
			if err := json.Unmarshal([]byte(text), &is); err != nil {
				t.Fatalf("%v: %s", err, text)
			}
			if is.KeptOut != "" {
				return Verdict{true, "what came after it is refused: " + is.KeptOut}
			}
			waits := false
			for _, q := range is.Queued {
				if q.ID == "poison" && q.Tries > 20 {
					return Verdict{true, fmt.Sprintf("it was tried %d times, and what came after it waits", q.Tries)}
				}
				waits = waits || q.ID == fine || q.ID == ""
			}
			if is.State == "offline" && strings.Contains(is.Detail, "Cannot read") {
				return Verdict{true, "the desktop has no queue: " + is.Detail}
			}
			if !waits && is.State == "online" {
				if !strings.Contains(v.events(t, "window.opened"), fine) {
					t.Fatalf("what came after it is neither in the queue nor in the log: %s", text)
				}
				return Verdict{false, text}
			}
			select {
			case <-v.ctx.Done():
				t.Fatalf("nothing came of the queue: %s", text)
			case <-time.After(20 * time.Millisecond):
			}
		}
	}}
}

// wholeVisitor is a real browser in front of the shared computer, signed in.
type wholeVisitor struct {
	*visitor
	*whole
	console string
	cid     string
	shown   string // the origin of the desktop that the console shows
}

// claimed are the cookies that the shared computer's console set for its claim link.
var claimed []chromium.Cookie

const isLive = "document.querySelector('iframe[data-role=shown]')?.dataset.mode === 'live'"

func newWholeVisitor(t *testing.T) *wholeVisitor {
	t.Helper()
	w, o := newWhole(t), newOutside(t) // they end after the page that uses them
	v := &wholeVisitor{whole: w, visitor: newTab(t)}
	v.outside = o
	v.console = v.URL
	if claimed == nil {
		v.open(t, v.ClaimURL)
		v.eval(t, "document.getElementById('go').click()")
		if err := v.Until(v.ctx, "location.pathname === '/' && document.readyState === 'complete'"); err != nil {
			t.Fatal(err)
		}
		got, err := v.Cookies(v.ctx, v.console+"/")
		if err != nil || len(got) == 0 {
			t.Fatalf("signed in with %d cookies, %v", len(got), err)
		}
		claimed = got
		if err := v.Until(v.ctx, isLive); err != nil { // the dev server has started
			t.Fatal(err)
		}
	} else if err := v.SetCookies(v.ctx, claimed...); err != nil {
		t.Fatal(err)
	}
	v.open(t, v.console+"/claim")
	v.cid = v.eval(t, "fetch('/api/computers').then((r) => r.json()).then((all) => all[0].id)")
	return v
}

// desktopShows opens the console until its desktop's page is the live one, with the defences that
// are off missing in its source.
func (v *wholeVisitor) desktopShows(t *testing.T) {
	t.Helper()
	for {
		v.open(t, v.console+"/")
		if err := v.Until(v.ctx, isLive); err != nil {
			t.Fatal(err)
		}
		v.shown = v.eval(t, "document.querySelector('iframe[data-role=shown]').dataset.origin")
		// The page may be older than the newest edit.
		if got := v.inDesktop(t, "globalThis."+mark); got == without(outboxFile) {
			return
		}
		if v.ctx.Err() != nil {
			t.Fatal("the desktop never had the edited source")
		}
	}
}

// inDesktop runs a script in the desktop's page that the console shows, and once more if that page
// was replaced before it answered.
func (v *wholeVisitor) inDesktop(t *testing.T, script string) string {
	t.Helper()
	for {
		ctx, cancel := context.WithTimeout(v.ctx, 5*time.Second)
		out, err := v.asked(ctx, script)
		cancel()
		if err == nil {
			return out
		}
		select {
		case <-v.ctx.Done():
			t.Fatalf("the desktop's page does not answer: %v", err)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func (v *wholeVisitor) asked(ctx context.Context, script string) (out string, err error) {
	back, err := v.Frame(ctx, v.shown+"/")
	if err != nil {
		return "", err
	}
	defer back()
	err = v.Evaluate(ctx, "(async () => String(await ("+script+")))()", true, &out)
	return out, err
}

// without returns the names of a file's defences that are off.
func without(file string) string {
	var off []string
	for name, s := range sources {
		if s.file == file && defence.Off(name) {
			off = append(off, string(name))
		}
	}
	slices.Sort(off)
	return strings.Join(off, " ") + "."
}

// edited holds the text that each file of the desktop was last given.
var edited = map[string]string{}

// edit writes a file of the desktop's source into the computer, without the defences that are off.
func (v *wholeVisitor) edit(t *testing.T, file string) {
	t.Helper()
	v.put(t, file, edits(t, file))
}

// edits returns a file of the desktop as computers get it, but without the defences that are off,
// which its page lists.
func edits(t *testing.T, file string) string {
	t.Helper()
	b, err := fs.ReadFile(desktop.Source(), file)
	if err != nil {
		t.Fatal(err)
	}
	text := quicker.in(t, string(b))
	for _, name := range slices.Sorted(maps.Keys(sources)) {
		if s := sources[name]; s.file == file && defence.Off(name) {
			text = s.in(t, text)
		}
	}
	return text + fmt.Sprintf("\nObject.assign(globalThis, { %s: '%s' })\n", mark, without(file))
}

// in returns the text without the defence, which must be in it exactly once.
func (s script) in(t *testing.T, text string) string {
	t.Helper()
	if strings.Count(text, s.with) != 1 {
		t.Fatalf("%s does not hold %q once: this row shows nothing", s.file, s.with)
	}
	return strings.Replace(text, s.with, s.without, 1)
}
