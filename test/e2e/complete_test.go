package e2e_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"choir.dev/choiros/internal/view"
	"choir.dev/choiros/test/choirtest"
)

var (
	flagOfVerb  = regexp.MustCompile(`(?m)^ +(?:-\w, )?(--[a-z-]+) ([A-Z][A-Z:-]*) `)
	offersNone  = []string{"TEXT", "WORDS", "ADDRESS", "PATTERN", "NAME", "URL", "CMD", "TASK", "HUNK", "COMMENT", "THING", "HOST:PORT", "ADDR:PORT", "INVITATION-TOKEN"}
	offersLocal = []string{"LOCAL", "FILE", "DIR"}
)

// named is what docs/cli.md says of the kinds of a verb's arguments and flags.
type named struct {
	verb      string
	arguments []string
	flags     map[string]string
}

func namedByVerbs(t *testing.T) (out []named) {
	t.Helper()
	page, err := os.ReadFile(filepath.Join(choirtest.Root(), "docs", "cli.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range strings.Split(string(page), "\n### choir ")[1:] {
		heading, body, _ := strings.Cut(part, "\n")
		n := named{flags: map[string]string{}}
		for _, w := range strings.Fields(heading) {
			switch w = strings.Trim(w, "[]…"); {
			case strings.HasPrefix(w, "-"):
			case w == strings.ToLower(w):
				n.verb += " " + w
			default:
				n.arguments = append(n.arguments, w)
			}
		}
		n.verb = strings.TrimSpace(n.verb)
		for _, m := range flagOfVerb.FindAllStringSubmatch(body, -1) {
			n.flags[m[1]] = m[2]
		}
		out = append(out, n)
	}
	return out
}

// completions tries the completion of each verb's arguments and flags: a shell is offered what
// exists, with a short description; words are existing names by kind. If no server answers, a
// completion ends by itself and offers nothing.
func completions(t *testing.T, in *choirtest.Instance, words map[string]string) {
	t.Helper()
	there := []string{"CHOIR_URL=" + in.URL, "CHOIR_TOKEN=" + in.Token}
	hung, _ := hanging(t)
	tried := 0
	complete := func(env []string, line ...string) (offers []string, how string) {
		t.Helper()
		r := verb(t, env, "", nil, append([]string{"__complete"}, line...)...)
		lines := strings.Split(strings.TrimSpace(r.Stdout), "\n")
		if r.Code != 0 {
			t.Errorf("%q: %+v", line, r)
		}
		return lines[:len(lines)-1], lines[len(lines)-1]
	}
	looks := func(kind string, line ...string) {
		t.Helper()
		offers, how := complete(there, append(line, "")...)
		switch {
		case slices.Contains(offersNone, kind):
			if len(offers) > 0 || how != ":36" {
				t.Errorf("%q is offered %q, %s", line, offers, how)
			}
			return
		case slices.Contains(offersLocal, kind):
			if len(offers) > 0 || how != ":0" && how != ":16" {
				t.Errorf("%q is offered %q, %s, and no local files", line, offers, how)
			}
			return
		}
		for one := range strings.SplitSeq(kind, "|") {
			want, ok := words[one]
			if !ok {
				if !slices.Contains(offersNone, one) && !slices.Contains(offersLocal, one) {
					t.Errorf("%q: what there is of %q is tried by nobody", line, one)
				}
				continue
			}
			tried++
			if !slices.ContainsFunc(offers, func(o string) bool { word, _, _ := strings.Cut(o, "\t"); return word == want }) {
				t.Errorf("%q is not offered the %s %q but %q", line, one, want, offers)
			}
		}
	}
	for _, n := range namedByVerbs(t) {
		line := strings.Fields(n.verb)
		for flag, kind := range n.flags {
			if kind != "QUESTION" { // TestWaitingForARun asks one
				looks(kind, append(slices.Clone(line), flag)...)
			}
		}
		for _, kind := range n.arguments {
			if kind != "APPROVAL" && kind != "SOURCE" && kind != "EFFECT" { // TestApprovals waits for one, TestARehearsedSummary makes one, TestWhatAKillInterruptsOutsideIsNotDoneTwice, too
				looks(kind, line...)
			}
			line = append(line, words[strings.Split(kind, "|")[0]])
		}
	}
	if tried < 40 {
		t.Errorf("%d names were tried: docs/cli.md reads otherwise by now", tried)
	}
	for _, env := range [][]string{nil, {"CHOIR_URL=http://127.0.0.1:1", "CHOIR_TOKEN=choir_x"}, {"CHOIR_URL=" + hung, "CHOIR_TOKEN=choir_x"}} {
		if offers, how := complete(env, "wait", ""); len(offers) > 0 || how != ":36" {
			t.Errorf("%q: offered is %q, %s", env, offers, how)
		}
	}
	if offers, _ := complete(there, "wait", words["RUN"][:10]); len(offers) == 0 || !strings.Contains(offers[0], "\t") {
		t.Errorf("what a run is nobody says: %q", offers)
	}
	if offers, how := complete(there, "files", "cat", "workspace/a"); !slices.Contains(offers, "workspace/a.txt\tfile") || how != ":36" {
		t.Errorf("in a folder: %q, %s", offers, how)
	}
}

// completionWords returns existing names by kind, as prepared made them.
func completionWords(t *testing.T, in *choirtest.Instance, words map[string]string) map[string]string {
	t.Helper()
	var trash []view.Trashed
	in.JSON(t, &trash, "files", "trash")
	var invitation view.Invitation
	in.JSON(t, &invitation, "members", "invite", "--role", "viewer")
	var token view.Token
	in.JSON(t, &token, "tokens", "create", "completed")
	var me []view.Member
	in.JSON(t, &me, "members")
	var models []view.Model
	in.JSON(t, &models, "models")
	i := slices.IndexFunc(models, func(m view.Model) bool { return m.Available })
	var gone view.Computer
	in.JSON(t, &gone, "computers", "create", "Gone")
	in.Must(t, "computers", "remove", string(gone.ID))
	var fact view.Fact
	in.JSON(t, &fact, "remember", "Keep this.")
	return map[string]string{
		"RUN": words["held"], "CHECKPOINT": words["checkpoint"][:10], "DOCUMENT": words["document"], "PROPOSAL": words["proposal"], "PATH": "workspace/", "ENTRY": trash[0].ID,
		"SECRET": "RM_text", "MODEL": models[i].ID, "COMPUTER": string(only(t, in)), "REMOVED": string(gone.ID), "MEMBER": me[0].ID, "ACCOUNT": me[0].ID,
		"INVITATION": invitation.ID, "TOKEN": token.ID, "ROLE": "viewer", "VERSION": "none", "CAPABILITY": "read", "POWER": "secrets", "SHELL": "bash", "EFFORT": "low", "OUTCOME": "unknown", "TYPE": "run.started", "ROW": "prompt",
		"FACT": fact.ID, "SERVER": "library", "TOOL": "echo",
	}
}
