package damage_test

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"choir.dev/choiros/internal/view"
	"choir.dev/choiros/test/choirtest"
)

// These are the outcomes of damage.
const (
	isRefused  = "refused"  // the computer does not wake and says why; nothing is changed
	isRepaired = "repaired" // it is awake, with every event and file
	isStopped  = "stopped"  // nothing is opened; choir up says why and what to do, at the console's address
	// isNamed is like repaired, except for content of which there is no other copy: whoever asks
	// for it gets an error that names it, and the scrub reports it.
	isNamed = "named"
)

// ways are the ways in which a part is damaged, in the order of the table.
var ways = []string{"bit flip", "cut", "empty", "gone", "older copy"}

// damageCase is a row of the table: a part, and the outcome of each way to damage it; "" is a way
// that does not apply.
type damageCase struct {
	part  string // a pattern; CID stands for the computer, {commit} and so on for an object
	state string // how the data directory was left: "", "killed" or "packed"; "large": with a large file
	want  [5]string
}

func all(outcome string) [5]string {
	return [5]string{outcome, outcome, outcome, outcome, outcome}
}

// damageTable contains every kind of file of a data directory. The table is also in
// docs/recovery.md.
var damageTable = []damageCase{
	{"nats/jetstream/*/streams/EVENTS-CID/msgs/1.blk", "", all(isRefused)},
	{"nats/jetstream/*/streams/EVENTS-CID/msgs/1.blk", "killed", all(isRefused)},
	{"nats/jetstream/*/streams/EVENTS-CID/msgs/index.db", "", all(isRepaired)},
	{"nats/jetstream/*/streams/EVENTS-CID/meta.inf", "", [5]string{isRefused, isRefused, isRefused, isRefused, isRepaired}},
	{"nats/jetstream/*/streams/EVENTS-CID/meta.sum", "", [5]string{isRefused, isRefused, isRefused, isRefused, isRepaired}},
	{"nats/jetstream/*/streams/EVENTS-CID", "", [5]string{"", "", isRefused, isRefused, isRefused}},
	{"nats", "", [5]string{"", "", isRefused, isRefused, isRefused}},
	{"keys", "", [5]string{"", "", isRefused, isRefused, isRepaired}},
	{"keys/account.nk", "", [5]string{isRefused, isRefused, isRefused, isRefused, isRepaired}},
	{"keys/operator.nk", "", [5]string{isRefused, isRefused, isRefused, isRefused, isRepaired}},
	{"keys/system.nk", "", [5]string{isRefused, isRefused, isRefused, isRefused, isRepaired}},
	{"keys/master.key", "", [5]string{isRefused, isRefused, isRefused, isRefused, isRepaired}},
	{"keys/secrets.sealed", "", [5]string{isRefused, isRefused, isRefused, isRefused, isRepaired}},
	{"computers/CID/log.head", "", [5]string{isRepaired, isRepaired, isRefused, isRefused, isRepaired}},
	{"computers/CID/state.sqlite", "", all(isRepaired)},
	{"computers/CID/state.sqlite", "killed", all(isRepaired)},
	{"computers/CID/state.sqlite-wal", "killed", all(isRepaired)},
	{"computers/CID/state.sqlite-shm", "killed", all(isRepaired)},
	{"computers/CID/workspace", "", [5]string{"", "", isRefused, isRefused, isRefused}},
	{"computers/CID/workspace/.git", "", [5]string{"", "", isRefused, isRefused, isRefused}},
	{"computers/CID/workspace/.git/HEAD", "", [5]string{isRepaired, isRepaired, isRepaired, isRefused, isRepaired}},
	{"computers/CID/workspace/.git/refs/heads/main", "", all(isRefused)},
	{"computers/CID/workspace/.git/choir/journal", "killed", all(isRepaired)},
	{"computers/CID/workspace/.git/{commit}", "", [5]string{isRepaired, isRepaired, isRepaired, isRepaired, ""}},
	{"computers/CID/workspace/.git/{tree}", "", [5]string{isRepaired, isRepaired, isRepaired, isRepaired, ""}},
	{"computers/CID/workspace/.git/{blob}", "", [5]string{isRepaired, isRepaired, isRepaired, isRepaired, ""}},
	{"computers/CID/workspace/.git/objects/pack/*.pack", "packed", [5]string{isRepaired, isRepaired, isRepaired, isRepaired, ""}},
	{"computers/CID/workspace/.git/objects/pack/*.idx", "packed", [5]string{isRepaired, isRepaired, isRepaired, isRepaired, ""}},
	{"computers/CID/workspace/.git/{manifest}", "large", [5]string{isRepaired, isRepaired, isRepaired, isRepaired, ""}},
	{"computers/CID/workspace/.git/choir/chunks", "large", [5]string{"", "", isNamed, isRefused, isRepaired}},
	{"computers/CID/workspace/.git/choir/chunks/{newest}", "large", [5]string{isRepaired, isRepaired, isRepaired, isRepaired, ""}},
	{"computers/CID/workspace/.git/choir/chunks/{earlier}", "large", [5]string{isNamed, isNamed, isNamed, isNamed, ""}},
	{"computers/CID/snapshots", "", [5]string{"", "", isRepaired, isRepaired, isRepaired}},
	{"computers/CID", "", [5]string{"", "", isRefused, isRefused, isRefused}},
	{"computers", "", [5]string{"", "", isRefused, isRefused, isRefused}},
	{"blobs", "", [5]string{"", "", isRefused, isRefused, isNamed}},
	{"blobs/CID", "", [5]string{"", "", isNamed, isRefused, isNamed}},
	{"blobs/CID/[0-9a-f][0-9a-f]/*", "", [5]string{isNamed, isNamed, isNamed, isNamed, ""}},
	{"parts", "", [5]string{isRefused, isRefused, isRefused, isRefused, isRepaired}},
	{"version", "", [5]string{isStopped, isRepaired, isStopped, isStopped, isRepaired}},
	{"control.sqlite", "", all(isStopped)},
	{"control.sqlite-wal", "killed", [5]string{isStopped, isStopped, isStopped, isStopped, ""}},
	{"control.head", "", [5]string{isStopped, isStopped, isStopped, isStopped, isRepaired}},
	{"cache", "", [5]string{"", "", isRepaired, isRepaired, isRepaired}},
}

// objects returns the files of the history's newest objects, by their kind.
func objects(t *testing.T, workspace string) map[string]string {
	t.Helper()
	out := map[string]string{}
	for name, rev := range map[string]string{"{commit}": "main", "{tree}": "main^{tree}", "{blob}": "main:workspace/two"} {
		b, err := exec.CommandContext(t.Context(), "git", "-C", workspace, "rev-parse", rev).Output()
		id := strings.TrimSpace(string(b))
		if err != nil || len(id) != 40 {
			t.Fatalf("git rev-parse %s: %v, %q", rev, err, id)
		}
		out[name] = filepath.Join("objects", id[:2], id[2:])
	}
	return out
}

// chunks returns the files of a chunk that only the newest version of the large file has, of one
// that only the version before it has, and of the newest manifest.
func chunks(t *testing.T, p prepared) map[string]string {
	t.Helper()
	workspace := filepath.Join(p.data, "computers", string(p.cid), "workspace")
	id, err := exec.CommandContext(t.Context(), "git", "-C", workspace, "rev-parse", "main:workspace/large.chunks.choir").Output()
	if err != nil || len(id) != 41 {
		t.Fatalf("git rev-parse: %v, %q", err, id)
	}
	out := map[string]string{"{manifest}": filepath.Join("objects", string(id[:2]), string(id[2:40]))}
	const dir = "workspace/.git/choir/chunks"
	found, err := filepath.Glob(filepath.Join(p.data, "computers", string(p.cid), dir, "??", "*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range found {
		b, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		if b[0] == 0 && b[len(b)/2] == 0 {
			continue // a chunk of the hole, which both versions have
		}
		name := filepath.Join(filepath.Base(filepath.Dir(f)), filepath.Base(f))
		if _, err := os.Stat(filepath.Join(p.older, "computers", string(p.cid), dir, name)); err == nil {
			out["{earlier}"] = name
		} else {
			out["{newest}"] = name
		}
	}
	if len(out) != 3 {
		t.Fatalf("of %d chunks: %v", len(found), out)
	}
	return out
}

// TestDamageIsRefusedOrRepairedAndSaid shows that whatever part of the data directory is damaged,
// in whatever way, either nothing is lost, or the computer is not woken, the console and the API
// say what is damaged, and nothing is written over it.
func TestDamageIsRefusedOrRepairedAndSaid(t *testing.T) {
	p := prepare(t)
	killed := prepareBy(t, func(in *choirtest.Instance, _ testing.TB) { in.Kill() }, "")
	large := prepareBy(t, (*choirtest.Instance).Stop, changeLarge)
	packed := p
	packed.data = copied(t, p.data)
	workspace := filepath.Join(packed.data, "computers", string(p.cid), "workspace")
	if out, err := exec.CommandContext(t.Context(), "git", "-C", workspace, "repack", "-adq").CombinedOutput(); err != nil {
		t.Fatalf("git repack: %v: %s", err, out)
	}
	if out, err := exec.CommandContext(t.Context(), "git", "-C", workspace, "prune-packed", "-q").CombinedOutput(); err != nil {
		t.Fatalf("git prune-packed: %v: %s", err, out)
	}
	named := map[string]map[string]string{"": objects(t, filepath.Join(p.data, "computers", string(p.cid), "workspace")), "large": chunks(t, large)}
	for _, c := range damageTable {
		p := map[string]prepared{"": p, "killed": killed, "packed": packed, "large": large}[c.state]
		pattern := strings.ReplaceAll(c.part, "CID", string(p.cid))
		for name, file := range named[c.state] {
			pattern = strings.ReplaceAll(pattern, name, file)
		}
		found, err := filepath.Glob(filepath.Join(p.data, pattern))
		if err != nil || len(found) == 0 {
			t.Errorf("no %s (%v)", c.part, err)
			continue
		}
		part := strings.TrimPrefix(found[len(found)-1], p.data+"/")
		for i, want := range c.want {
			if want == "" {
				continue
			}
			t.Run(strings.TrimSpace(strings.ReplaceAll(c.part, "/", "·")+" "+c.state)+" "+ways[i], func(t *testing.T) {
				t.Parallel()
				damagePart(t, p, part, ways[i], want)
			})
		}
	}
}

// damagePart damages one part in one way and compares the outcome with the expected one.
func damagePart(t *testing.T, p prepared, part, way, want string) {
	data := copied(t, p.data)
	if err := damages(p.older)[way](filepath.Join(data, part), part); err != nil {
		t.Fatal(err)
	}
	before := kept(t, data)
	in, err := choirtest.TryStart(t, choirtest.Options{Data: data, Stopped: want == isStopped})
	if want == isStopped {
		if err != nil || in.Stopped == nil || !strings.Contains(in.Stopped.Hint, "choir recover") {
			t.Fatalf("choir up: %v, %+v; want it %s", err, in, want)
		}
		if resp, body := asked(t, in, "GET", "console.", "/"); resp.StatusCode != http.StatusServiceUnavailable || !strings.Contains(body, part) {
			t.Errorf("the console says %s: %.300s", resp.Status, body)
		}
		in.Stop(t)
		unchanged(t, before, kept(t, data))
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	got := in.Standing(t)
	if want != isRefused {
		if got.State != view.StateAwake {
			t.Fatalf("it is %s: %+v; want it awake", got.State, got.Trouble)
		}
		events := strings.Split(strings.TrimSpace(in.Must(t, "events", "--json")), "\n")
		if len(events) < len(p.events) {
			t.Fatalf("%d of %d events are there", len(events), len(p.events))
		}
		for i, e := range p.events {
			if events[i] != e {
				t.Fatalf("event %d is\n%s\nit was\n%s", i+1, events[i], e)
			}
		}
		if got := in.Must(t, "exec", "--", "sh", "-c", "cat workspace/one workspace/two; echo three > workspace/three"); got != "one\ntwo\n" {
			t.Errorf("the files hold %q", got)
		}
		if p.large[1] != "" {
			goesBack(t, in, p, want)
		}
		if list := in.Must(t, "checkpoints"); strings.Count(list, " after ") < 3 && !strings.Contains(part, ".git") {
			t.Errorf("the checkpoints are %s", list)
		}
		return
	}
	if got.State != view.StateDamaged || got.Trouble == nil || len(got.Trouble.Reason) == 0 || got.Trouble.Safe == "" || !strings.Contains(got.Trouble.Hint, "Press Recover") || strings.Contains(got.Trouble.Hint, "choir recover") {
		t.Fatalf("it is %s: %+v; want damaged, with why, what is safe and what to do", got.State, got.Trouble)
	}
	if res, err := in.Run(t.Context(), "runs"); err != nil || res.Code == 0 || !strings.Contains(res.Stderr, "does not wake") {
		t.Errorf("choir runs: %v, exit %d: %s", err, res.Code, res.Stderr)
	}
	in.Stop(t)
	unchanged(t, before, kept(t, data))
	if _, err := os.Stat(filepath.Join(data, "computers", string(p.cid), "state.sqlite")); err == nil {
		if now := rows(t, data, p.cid); len(now) < len(p.events) {
			t.Errorf("the state has %d of %d events", len(now), len(p.events))
		}
	}
}

// goesBack checks the large file and a restore of the version before it. If a part of that version
// is lost, the restore names it and changes nothing, and the other files can be restored without
// it.
func goesBack(t *testing.T, in *choirtest.Instance, p prepared, want string) {
	t.Helper()
	if got := largeOf(t, in.Data); got != p.large[1] {
		t.Fatalf("the large file is %.12s, it was %.12s", got, p.large[1])
	}
	res, err := in.Run(t.Context(), "restore", p.first)
	if err != nil {
		t.Fatal(err)
	}
	got := largeOf(t, in.Data)
	if want == isRepaired {
		if res.Code != 0 || got != p.large[0] {
			t.Errorf("the version before: exit %d: %s; it is %.12s, it was %.12s", res.Code, res.Stderr, got, p.large[0])
		}
		return
	}
	if res.Code == 0 || !strings.Contains(res.Stderr, "workspace/large") || got != p.large[1] {
		t.Errorf("the version of which a part is lost: exit %d: %s; the file is %.12s, it was %.12s", res.Code, res.Stderr, got, p.large[1])
	}
	in.Must(t, "exec", "--", "rm", "workspace/one")
	in.Must(t, "restore", p.first, "--path", "workspace/one")
}

var writeTable = flag.Bool("write-damage-table", false, "write the table of damages into docs/recovery.md")

// TestTheTableOfDamagesIsTheOneThatIsTried compares the table in docs/recovery.md with the one
// here.
func TestTheTableOfDamagesIsTheOneThatIsTried(t *testing.T) {
	const begin, end = "<!-- damages -->\n", "<!-- /damages -->\n"
	var b strings.Builder
	fmt.Fprintf(&b, "| part | %s |\n|---%s|\n", strings.Join(ways, " | "), strings.Repeat("|---", len(ways)))
	for _, c := range damageTable {
		cells := make([]string, len(c.want))
		for i, w := range c.want {
			if cells[i] = w; w == "" {
				cells[i] = "–"
			}
		}
		name := "`" + c.part + "`"
		if c.state != "" {
			name += " (" + c.state + ")"
		}
		fmt.Fprintf(&b, "| %s | %s |\n", name, strings.Join(cells, " | "))
	}
	t.Log("\n" + b.String())
	path := filepath.Join(choirtest.Root(), "docs", "recovery.md")
	doc, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := strings.Cut(string(doc), begin)
	table, after, closed := strings.Cut(rest, end)
	if !ok || !closed {
		t.Fatal(errors.New("docs/recovery.md has no place for the table"))
	}
	if table == b.String() {
		return
	}
	if !*writeTable {
		t.Fatalf("docs/recovery.md has another table; write it with: go test ./test/e2e -run %s -write-damage-table", t.Name())
	}
	if err := os.WriteFile(path, bytes.Join([][]byte{[]byte(before), []byte(begin), []byte(b.String()), []byte(end), []byte(after)}, nil), 0o644); err != nil {
		t.Fatal(err)
	}
}

// TestALostBlobIsNamed shows that a blob that was lost or changed while choir was stopped is
// reported to the user, in the computer's notes and as an event, with the file and what to do.
func TestALostBlobIsNamed(t *testing.T) {
	p := prepare(t)
	for _, way := range []string{"bit flip", "gone"} {
		t.Run(way, func(t *testing.T) {
			t.Parallel()
			data := copied(t, p.data)
			found, err := filepath.Glob(filepath.Join(data, "blobs", string(p.cid), "[0-9a-f][0-9a-f]", "*"))
			if err != nil || len(found) == 0 {
				t.Fatal(found, err)
			}
			for _, f := range found {
				if err := damages(p.older)[way](f, ""); err != nil {
					t.Fatal(err)
				}
			}
			in := choirtest.Start(t, choirtest.Options{Data: data})
			choirtest.Eventually(t, time.Minute, "the blob is named", func() bool {
				return strings.Contains(strings.Join(in.Standing(t).Notes, "\n"), filepath.Base(found[0])[:16])
			})
			if out := in.Must(t, "events", "--json", "--type", "damage.found"); !strings.Contains(out, filepath.Base(found[0])[:16]) {
				t.Errorf("the log says %q", out)
			}
		})
	}
}
