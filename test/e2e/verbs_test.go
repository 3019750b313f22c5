package e2e_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/view"
	"choir.dev/choiros/test/choirtest"
	"choir.dev/choiros/test/modelserver"
)

// row says how one verb is tried. Words in braces in its arguments, such as {held}, are replaced by
// names, and {how} by the way in which it is called: text or json.
type row struct {
	args  string
	input string
	code  int
	// refused is why the verb must fail here. Its success is tried by the test that elsewhere
	// names, or at the end of this one.
	refused, elsewhere string
	bad                string // arguments with a bad value; - means that it takes none
	alone              bool   // it needs no control plane
}

// verbRows are all verbs except those with tests of their own.
var verbRows = map[string]row{
	"prompt":            {args: "make it {how}", bad: "--timeout -1s x"},
	"wait":              {args: "{done}", bad: "no-run"},
	"answer":            {args: "{held} b", code: 1, refused: "asks nothing", elsewhere: "TestWaitingForARun", bad: "no-run x"},
	"runs":              {bad: "--limit -1"},
	"run cancel":        {args: "{cancel-{how}}", bad: "no-run"},
	"run pause":         {args: "{held}", bad: "no-run"},
	"run resume":        {args: "{held}", bad: "no-run"},
	"run steer":         {args: "{held} faster", bad: "no-run x"},
	"run model":         {args: "{fresh-{how}} rehearsal/rehearsal", bad: "no-run x"},
	"run trace":         {args: "{done}", bad: "no-run"},
	"approvals":         {bad: "--limit -1"},
	"approvals show":    {args: "{nobody}", code: 1, bad: "a b"},
	"approve":           {args: "no-approval", code: 1, refused: "no approval", elsewhere: "TestApprovals", bad: "x --run --deny"},
	"reviews":           {bad: "--limit -1"},
	"review":            {args: "{held}", code: 1, refused: "waits until somebody has looked", elsewhere: "TestWorkIsLookedAtFirst", bad: "x --publish --discard"},
	"exec":              {args: "-- sh -c true", bad: "--cwd ../x -- true"},
	"files ls":          {args: "workspace", bad: "../x"},
	"files cat":         {args: "workspace/a.txt", bad: "../x"},
	"files get":         {args: "workspace/a.txt {dir}/got-{how}.txt", bad: "../x {dir}/none"},
	"files put":         {args: "- workspace/put-{how}.txt", input: "put\n", bad: "{dir}/folder workspace/put"},
	"files rm":          {args: "workspace/rm-{how}.txt", bad: "../x"},
	"files mv":          {args: "workspace/mv-{how}.txt workspace/moved-{how}.txt", bad: "../x workspace/y"},
	"files trash":       {bad: "extra"},
	"files untrash":     {args: "{trash-{how}} workspace/back-{how}.txt", bad: "x ../y"},
	"add":               {args: "{dir}/folder --name added-{how}", bad: "{dir}/folder --name ../x"},
	"documents":         {args: "{document}", bad: "{document} --limit -1"},
	"documents show":    {args: "{document}", bad: "{document} --revision -1"},
	"documents write":   {args: "{document} {dir}/folder/file --base {revision}", bad: "{document} {dir}/folder/file"},
	"proposals":         {args: "{document}", bad: "{document} --limit -1"}, // their resolution is tried below
	"proposals show":    {args: "{document} {proposal}", bad: "x"},
	"proposals accept":  {args: "{document} {nobody}", code: 1, refused: "proposal", bad: "x"},
	"proposals dismiss": {args: "{document} {nobody}", code: 1, refused: "proposal", bad: "x"},
	"export":            {args: "{dir}/export-{how}.tar", bad: "- --json"},
	"checkpoints":       {bad: "--limit -1"},
	"checkpoints show":  {args: "{checkpoint}", bad: "none"},
	"checkpoint":        {args: "-m {how}", bad: "extra"},
	"diff":              {args: "{checkpoint}", bad: "none"},
	"restore":           {args: "{checkpoint} --dry-run", bad: "none"},
	"undo":              {args: "--dry-run", bad: "extra"},
	"events":            {args: "--limit 3", bad: "--run nosuch"},
	"egress":            {bad: "--run no-run"},
	"models":            {bad: "extra"},
	"models test":       {bad: "a b"},
	"secrets set":       {args: "OWN_{how}", input: "value", bad: "-"},
	"secrets ls":        {bad: "extra"},
	"secrets rm":        {args: "RM_{how}", bad: "a b"},
	"status":            {bad: "extra"},
	"open":              {bad: "extra"},
	"computers":         {bad: "extra"},
	"wake":              {bad: "extra"},
	"rebuild":           {args: "--check", bad: "extra"},

	// These are about people and computers; TestTwoPeopleAndThreeComputers tries what they do.
	"members":             {bad: "extra"},
	"members invite":      {bad: "--role nobody"},
	"members invitations": {bad: "extra"},
	"members revoke":      {args: "{nobody}", code: 1, bad: "-"},
	"members set":         {args: "{nobody} viewer", code: 1, bad: "{nobody} nobody"},
	"members rm":          {args: "{nobody}", code: 1, bad: "a b"},
	"members leave":       {code: 1, bad: "extra"},
	"sign-in":             {input: "not a link", code: 2, alone: true, bad: "extra"}, // see TestASecondPersonNeedsNoBrowser
	"join":                {args: "{nobody}", code: 1, bad: "a b"},
	"accounts":            {bad: "extra"},
	"accounts invite":     {args: "{how}", bad: "a --power nothing"},
	"accounts link":       {args: "{nobody}", code: 1, bad: "a b"},
	"accounts set":        {args: "{nobody} computers", code: 1, bad: "{nobody} nothing"},
	"accounts rm":         {args: "{nobody}", code: 1, bad: "a b"},
	"tokens":              {bad: "extra"},
	"git url":             {bad: "--days 0"},
	"tokens create":       {args: "{how} --may read --days 1", bad: "a --may everything"},
	"tokens revoke":       {args: "{nobody}", code: 1, bad: "a b"},
	"computers fork":      {args: "Attempt --checkpoint 0000000", code: 1, bad: "a b"},
	"computers remove":    {args: "aaaaaaaaaaaaaaaa", code: 1, bad: "a b"},
	"computers removed":   {bad: "extra"},
	"computers put-back":  {args: "aaaaaaaaaaaaaaaa", code: 1, bad: "a b"},

	"mcp":                {bad: "extra"}, // with nothing on its input it ends; see TestALibraryNotOursUsesTheComputer
	"mcp list":           {bad: "extra"},
	"mcp show":           {args: "library", bad: "a b"},
	"memory":             {bad: "extra"},
	"effects":            {args: "--outcome unknown", bad: "extra"},
	"effects show":       {args: "{nobody}", code: 1, bad: "a b"},
	"effects resolve":    {args: "{nobody} --done", code: 1, bad: "{nobody}"},
	"effects compensate": {args: "{nobody}", code: 1, bad: "no-effect"},
	"library":            {args: "words", bad: "--limit -1"},
	"source":             {args: "{nobody}", code: 1, bad: "a b"},
	"logs":               {args: "--data {data}", alone: true, bad: "--limit -1"},
	"config show":        {alone: true, bad: "--listen nowhere"},
	"completion":         {args: "bash", alone: true, bad: "tcsh"},
	"man":                {args: "{dir}/man-{how}", alone: true, bad: "--json"},
	"version":            {alone: true, bad: "extra"},
}

// elsewhere are the verbs with tests of their own.
var elsewhere = map[string]string{
	"up": "TestUp", "stop": "TestEveryVerb", "doctor": "TestBadMachineNoGit", "recover": "TestRecoverGivesTheComputerBack", "bench": "TestRows", "eval": "TestAnEvaluationLeavesNothing",
	"computers create": "TestSeveralComputersOnOneMachine",
	"mcp add":          "TestATaskUsesAPublicServer", "mcp approve": "TestATaskUsesAPublicServer", "mcp revoke": "TestATaskUsesAPublicServer", "mcp remove": "TestATaskUsesAPublicServer",
	"summarise": "TestResearchAndWriting",
	"remember":  "TestWhatIsKeptIsToldUntilItIsForgotten", "forget": "TestWhatIsKeptIsToldUntilItIsForgotten",
}

var verbHeading = regexp.MustCompile("(?ms)^### choir ([a-z -]*[a-z])([^\n]*)\n(.*?)(?:\\z|^##)")

// declaredVerbs returns the verbs in docs/cli.md, which is generated from the declarations, each
// with the top-level members of its JSON output, or none if it prints something else.
func declaredVerbs(t *testing.T) map[string][]string {
	t.Helper()
	page, err := os.ReadFile(filepath.Join(choirtest.Root(), "docs", "cli.md"))
	if err != nil {
		t.Fatal(err)
	}
	out := map[string][]string{}
	// The rest is searched again from each heading, because a heading also ends the part before it.
	for rest := string(page); ; {
		at := verbHeading.FindStringSubmatchIndex(rest)
		if at == nil {
			return out
		}
		name, body := rest[at[2]:at[3]], rest[at[6]:at[7]]
		out[name] = nil
		if _, shape, ok := strings.Cut(body, "`--json`: `"); ok {
			shape, _, _ = strings.Cut(shape, "`")
			out[name] = topMembers(shape)
		}
		rest = rest[at[5]:]
	}
}

// topMembers returns the names in the outermost braces of a shape; the first is [ if there can be
// several.
func topMembers(shape string) []string {
	out := []string{"{"}
	if strings.HasPrefix(shape, "[") {
		out[0] = "["
		shape = strings.TrimPrefix(shape, "[")
	}
	depth, name := 0, ""
	for _, r := range shape {
		switch {
		case r == '{' || r == '[':
			depth++
		case r == '}' || r == ']':
			depth--
		case depth == 1 && r != ',' && r != ' ' && r != ':':
			name += string(r)
			continue
		}
		if name != "" && (depth != 1 || r == ',' || r == ':') {
			out, name = append(out, name), ""
		}
	}
	return out
}

// TestEveryVerb holds every verb to the same rules: it answers in text, and in JSON of the declared
// shape; it ends with 2 for a bad value, with 3 if no server answers, and with 130 when it is
// interrupted; and it prints the reason on standard error only.
func TestEveryVerb(t *testing.T) {
	t.Parallel()
	verbs := declaredVerbs(t)
	for name := range verbs {
		if _, ok := verbRows[name]; !ok && elsewhere[name] == "" {
			t.Errorf("nothing tries %q", name)
		}
	}
	s := modelserver.New(modelserver.Script{Turns: join(
		turnsOf("director", "Begin verbs", report("done", "Begun.")), proposes("verbs"),
		turnsOf("director", "hold on", modelserver.Turn{Hold: "for ever", Repeat: true}),
		turnsOf("director", "make it", modelserver.Turn{Repeat: true, Calls: report("done", "Made.").Calls}),
		turnsOf("", "", modelserver.Turn{Repeat: true, Text: "word"}))}).Start()
	t.Cleanup(s.Close)
	dir := t.TempDir()
	modules, program := publicServer()
	in := choirtest.Start(t, choirtest.Options{Env: append(modelEnv(s, modelserver.Anthropic, newKey()), "CHOIR_RUNTIME_READ_ONLY="+modules)})
	in.Must(t, "mcp", "add", "library", "--", "node", program, "stdio")
	in.Must(t, "mcp", "approve", "library", "echo", "--yes")
	_, accept := (&fullDisk{T: t, in: in}).proposed(s, "verbs") // the first document's
	words := prepared(t, in, dir)
	parts := strings.Split(accept.path, "/")
	words["document"], words["proposal"] = parts[2], parts[4]
	words["revision"] = fmt.Sprint(newest(t, in, parts[2]).Revision)
	t.Run("completions", func(t *testing.T) { completions(t, in, completionWords(t, in, words)) })
	fill := func(text, how string) []string {
		text = strings.ReplaceAll(text, "{how}", how)
		for name, value := range words {
			text = strings.ReplaceAll(text, "{"+name+"}", value)
		}
		return strings.Fields(text)
	}
	hung, accepted := hanging(t)
	for name, r := range verbRows {
		members, ok := verbs[name]
		if !ok {
			t.Errorf("%q is no verb", name)
			continue
		}
		t.Run(name, func(t *testing.T) {
			call := func(how string, env []string, then func(*exec.Cmd), more ...string) choirtest.Result {
				return verb(t, env, r.input, then, append(append(strings.Fields(name), fill(r.args, how)...), more...)...)
			}
			there := []string{"CHOIR_URL=" + in.URL, "CHOIR_TOKEN=" + in.Token}
			bad, gone := 2, 3
			if strings.Contains(r.args, "{fresh-") { // of runs that the verb lets end, when it is their turn: only four are under way
				words["fresh-text"], words["fresh-json"] = submit(t, in, "hold on"), submit(t, in, "hold on")
			}
			if name == "exec" {
				bad, gone = 125, 125
			}
			text := call("text", there, nil)
			if text.Code != r.code || r.code != 0 && (text.Stdout != "" || !strings.Contains(text.Stderr, r.refused)) {
				t.Errorf("text: %+v; want code %d", text, r.code)
			}
			flags := []string{"--json"}
			if name == "exec" {
				flags = nil // this flag is before the command
				r.args = "--json " + r.args
			}
			got := call("json", there, nil, flags...)
			if got.Code != r.code {
				t.Errorf("json: %+v; want code %d", got, r.code)
			}
			if r.code == 0 && len(members) > 0 {
				shaped(t, got.Stdout, members)
			}
			wrong := [][]string{{"--no-such-flag"}}
			if r.bad != "-" {
				wrong = append(wrong, fill(r.bad, "bad"))
			}
			for _, args := range wrong {
				if x := verb(t, there, r.input, nil, append(strings.Fields(name), args...)...); x.Code != bad || x.Stdout != "" || !strings.HasPrefix(x.Stderr, "choir: ") {
					t.Errorf("%q: %+v; want code %d and why on standard error", args, x, bad)
				}
			}
			if r.alone {
				return
			}
			if x := call("gone", []string{"CHOIR_URL=http://127.0.0.1:1", "CHOIR_TOKEN=choir_x"}, nil); x.Code != gone || x.Stdout != "" || !strings.Contains(x.Stderr, "choir up") {
				t.Errorf("nobody answers: %+v; want code %d and what to do", x, gone)
			}
			if x := call("hung", []string{"CHOIR_URL=" + hung, "CHOIR_TOKEN=choir_x"}, func(cmd *exec.Cmd) {
				<-accepted
				_ = cmd.Process.Signal(os.Interrupt)
			}); x.Code != 130 || !strings.Contains(x.Stderr, "signal") {
				t.Errorf("interrupted: %+v; want code 130", x)
			}
			for len(accepted) > 0 {
				<-accepted
			}
		})
	}
	verbsLast(t, in, words["document"], words["proposal"])
}

// newest returns a document's newest revision, from their list.
func newest(t *testing.T, in *choirtest.Instance, document string) view.Document {
	t.Helper()
	var list []view.Document
	in.JSON(t, &list, "documents", document, "--limit", "1")
	if len(list) != 1 || list[0].ID != document || list[0].Revision < 1 {
		t.Fatalf("the newest revision: %+v", list)
	}
	return list[0]
}

// revised writes a revision over another, is refused where it changes the same lines, and undoes
// it.
func revised(t *testing.T, in *choirtest.Instance, document string) {
	t.Helper()
	write := func(base int, text string) choirtest.Result {
		t.Helper()
		r, err := in.RunInput(t.Context(), []byte(text), "documents", "write", document, "-", "--base", fmt.Sprint(base))
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	was := newest(t, in, document)
	if r := write(was.Revision, "# Mine\n"); r.Code != 0 {
		t.Errorf("%+v", r)
	}
	if text := in.Must(t, "files", "cat", was.Path); text != "# Mine\n" {
		t.Errorf("the file holds %q", text)
	}
	if r := write(was.Revision, "# Another's\n"); r.Code != 1 || !strings.Contains(r.Stderr, "changed the same text") {
		t.Errorf("over what was changed meanwhile: %+v; want code 1 and why", r)
	}
	in.Must(t, "undo")
	if now := newest(t, in, document); now.Revision != was.Revision+2 || now.Body != was.Body {
		t.Errorf("after undo revision %d says %q; revision %d said %q", now.Revision, now.Body, was.Revision, was.Body)
	}
}

// verbsLast tries what can be done only once.
func verbsLast(t *testing.T, in *choirtest.Instance, document, proposal string) {
	t.Helper()
	revised(t, in, document)
	var accepted struct{ Resolution string }
	was := newest(t, in, document)
	in.JSON(t, &accepted, "proposals", "accept", document, proposal)
	if now := newest(t, in, document); now.Body == was.Body {
		t.Error("what was accepted changed nothing")
	}
	var undone view.Restored
	if in.JSON(t, &undone, "undo"); undone.Undone == nil || undone.Undone.What != view.UndoneRevision || newest(t, in, document).Body != was.Body {
		t.Errorf("undoing what was accepted: %+v", undone)
	}
	if again, err := in.Run(t.Context(), "proposals", "dismiss", document, proposal); err != nil || accepted.Resolution != "accepted" || again.Code != 1 {
		t.Errorf("accepted: %+v, and then dismissed: %+v, %v", accepted, again, err)
	}
	for _, x := range []struct {
		code int
		args []string
	}{{0, []string{"status"}}, {0, []string{"stop", "--json"}}, {3, []string{"stop"}}, {3, []string{"status"}}, {2, []string{"stop", "--timeout", "0s"}}, {0, []string{"logs"}}} {
		if r := verb(t, nil, "", nil, append(x.args, "--data", in.Data)...); r.Code != x.code {
			t.Errorf("%q: %+v; want code %d", x.args, r, x.code)
		}
	}
	<-in.Done()
}

// prepared makes what the rows name.
func prepared(t *testing.T, in *choirtest.Instance, dir string) map[string]string {
	t.Helper()
	words := map[string]string{"dir": dir, "data": in.Data, "nobody": contract.NewID()}
	if err := os.MkdirAll(filepath.Join(dir, "folder"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "folder", "file"), []byte("file\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	put(t, in, "workspace/a.txt", "a")
	for _, how := range []string{"text", "json"} {
		put(t, in, "workspace/rm-"+how+".txt", "rm")
		put(t, in, "workspace/mv-"+how+".txt", "mv")
		put(t, in, "workspace/trash-"+how+".txt", "trash")
		in.Must(t, "files", "rm", "workspace/trash-"+how+".txt")
		if r, err := in.RunInput(t.Context(), []byte("value"), "secrets", "set", "RM_"+how); err != nil || r.Code != 0 {
			t.Fatalf("%+v, %v", r, err)
		}
		words["cancel-"+how] = submit(t, in, "hold on")
	}
	var trash []struct{ ID, Path string }
	in.JSON(t, &trash, "files", "trash")
	for _, e := range trash {
		for _, how := range []string{"text", "json"} {
			if strings.HasSuffix(e.Path, "trash-"+how+".txt") {
				words["trash-"+how] = e.ID
			}
		}
	}
	done := prompt(t, in, "make it first")
	words["done"] = done.Run
	words["held"] = submit(t, in, "hold on")
	var k struct{ ID string }
	in.JSON(t, &k, "checkpoint", "-m", "prepared")
	words["checkpoint"] = k.ID
	// This is something that can be undone.
	in.Must(t, "restore", k.ID)
	return words
}

// shaped checks that JSON has no member that is not declared, and at least one that is.
func shaped(t *testing.T, text string, members []string) {
	t.Helper()
	var one map[string]any
	if members[0] == "[" {
		var several []map[string]any
		if err := json.Unmarshal([]byte(text), &several); err != nil {
			t.Errorf("it prints no list: %v\n%s", err, text)
			return
		}
		if len(several) == 0 {
			return
		}
		one = several[0]
	} else if err := json.Unmarshal([]byte(text), &one); err != nil {
		t.Errorf("it prints no object: %v\n%s", err, text)
		return
	}
	if len(one) == 0 {
		t.Errorf("it prints nothing of %v", members[1:])
	}
	for name := range one {
		if !slices.Contains(members[1:], name) {
			t.Errorf("it prints %q; declared are %v", name, members[1:])
		}
	}
}

// verb runs the command line; then, if not nil, is called once it runs.
func verb(t *testing.T, env []string, input string, then func(*exec.Cmd), args ...string) choirtest.Result {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, choirtest.Binary(t), args...)
	cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir()}, env...)
	var out, errb bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(input), &out, &errb
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if then != nil {
		then(cmd)
	}
	var exit *exec.ExitError
	if err := cmd.Wait(); err != nil && (!errors.As(err, &exit) || ctx.Err() != nil) {
		t.Errorf("choir %s: %v\n%s", strings.Join(args, " "), err, errb.String())
	}
	return choirtest.Result{Stdout: out.String(), Stderr: errb.String(), Code: cmd.ProcessState.ExitCode()}
}

// hanging is a server that accepts connections, reports each, and never answers.
func hanging(t *testing.T) (url string, accepted chan struct{}) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	accepted = make(chan struct{}, 16)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		var held []net.Conn
		defer func() {
			for _, c := range held {
				_ = c.Close()
			}
		}()
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			held = append(held, c)
			accepted <- struct{}{}
		}
	}()
	t.Cleanup(func() { _ = ln.Close(); <-ended })
	return "http://" + ln.Addr().String(), accepted
}
