package e2e_test

import (
	"encoding/json"
	"strings"
	"testing"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/test/choirtest"
	"choir.dev/choiros/test/modelserver"
)

// askingProgram is an agent program that knows nothing but its vendor's two variables. It prints one line of
// JSON: the answers of each wire, statuses, and the environment.
const askingProgram = `
const out = { env: process.env, answers: {}, status: {} };
const tool = { name: 'look', description: 'looks', schema: { type: 'object', properties: { at: { type: 'string' } } } };
const anthropic = { url: process.env.ANTHROPIC_BASE_URL + '/v1/messages', headers: { 'x-api-key': process.env.ANTHROPIC_API_KEY, 'anthropic-version': '2023-06-01' } };
const openai = (path) => ({ url: process.env.OPENAI_BASE_URL + path, headers: { authorization: 'Bearer ' + process.env.OPENAI_API_KEY } });
const post = (to, body, headers) => fetch(to.url, { method: 'POST', headers: { 'content-type': 'application/json', ...to.headers, ...headers }, body: JSON.stringify(body) });
const wires = {
  messages: [anthropic, (text, stream) => ({ model: 'claude-x', max_tokens: 200, stream, messages: [{ role: 'user', content: text }], tools: [{ name: tool.name, description: tool.description, input_schema: tool.schema }] })],
  completions: [openai('/chat/completions'), (text, stream) => ({ model: 'gpt-x', max_completion_tokens: 200, stream, messages: [{ role: 'user', content: text }], tools: [{ type: 'function', function: { name: tool.name, parameters: tool.schema } }] })],
  responses: [openai('/responses'), (text, stream) => ({ model: 'gpt-x', max_output_tokens: 200, stream, store: false, input: text, tools: [{ type: 'function', name: tool.name, parameters: tool.schema }] })],
};
for (const [name, [to, body]] of Object.entries(wires)) {
  for (const stream of [false, true]) {
    const r = await post(to, body('a program asks over ' + name + (stream ? ' in a stream.' : ' at once.'), stream));
    out.status[name + stream] = r.status;
    out.answers[name + stream] = await r.text();
  }
}
out.status.wrong = (await post(anthropic, wires.messages[1]('x', false), { 'x-api-key': 'choir-box-of-another' })).status;
out.status.models = (await fetch(process.env.OPENAI_BASE_URL + '/models', { headers: openai('').headers })).status;
console.log(JSON.stringify(out));
`

// lonelyProgram looks for the model where it was not granted.
const lonelyProgram = `
const out = { vars: Object.keys(process.env).filter((k) => /ANTHROPIC|OPENAI/.test(k)) };
try { out.status = (await fetch('http://127.0.0.1:1081/v1/models')).status; } catch (e) { out.refused = String(e.cause ?? e); }
console.log(JSON.stringify(out));
`

// TestAProgramInABoxAsksTheModel over each wire, through the binary: it is answered by the host's model within
// its task's budget, metered for its task, and holds nothing that is worth anything elsewhere.
func TestAProgramInABoxAsksTheModel(t *testing.T) {
	t.Parallel()
	steps := func(goal, program string, more object) modelserver.Turn {
		task := object{"kind": "exec", "goal": goal, "verify": object{"profile": "none"}, "want": object{"logs": true},
			"steps": []any{object{"write": object{"path": "workspace/ask.mjs", "content": program}}, object{"run": object{"argv": []any{"node", "workspace/ask.mjs"}}}}}
		for k, v := range more {
			task[k] = v
		}
		return delegate(task)
	}
	turns := director(
		steps("ask", askingProgram, object{"tools": []any{"model"}}),
		steps("ask with little", askingProgram, object{"tools": []any{"model"}, "budget": object{"tokens": 50}}),
		steps("look for it", lonelyProgram, nil),
		report("done", "Asked."))
	for _, wire := range []string{"messages", "completions", "responses"} {
		for _, how := range []string{"at once", "in a stream"} {
			turns = append(turns, modelserver.Turn{Match: "asks over " + wire + " " + how, Text: "The answer to " + wire + " " + how + ".", Calls: call("look", object{"at": wire}),
				Usage: &modelserver.Usage{In: 70, Out: 11}})
		}
	}
	s := modelserver.New(modelserver.Script{Turns: turns}).Start()
	t.Cleanup(s.Close)
	key := newKey()
	in := choirtest.Start(t, choirtest.Options{Env: modelEnv(s, modelserver.Anthropic, key)})
	p := prompt(t, in, "let a program ask")
	r := runOf(t, in, p.Run)
	if p.Status != "done" || len(r.Tasks) != 3 {
		t.Fatalf("%+v (turns left: %v)\n%s", p, s.Left(), in.Must(t, "events", "--type", "task.finished"))
	}
	var said struct {
		Env     map[string]string
		Answers map[string]string
		Status  map[string]int
	}
	read := func(task int, into any) string {
		t.Helper()
		res := r.Tasks[task].Result
		if res == nil || len(res.Commands) != 1 {
			t.Fatalf("task %d: %+v", task, res)
		}
		// The output is clipped in results; it is whole in the log.
		for _, e := range eventsOf(t, in, "tool.returned") {
			if ret := data[contract.ToolReturned](t, e); e.Task == r.Tasks[task].ID && ret.Name == "run" {
				line := ret.Output[strings.Index(ret.Output, "{"):]
				if ret.OutputRef != "" || json.NewDecoder(strings.NewReader(line)).Decode(into) != nil {
					t.Fatalf("task %d says %s", task, ret.Output)
				}
				return ret.Output
			}
		}
		t.Fatalf("task %d ran nothing", task)
		return ""
	}
	all := read(0, &said)
	for _, wire := range []string{"messages", "completions", "responses"} {
		for name, how := range map[string]string{wire + "false": "at once", wire + "true": "in a stream"} {
			answer := said.Answers[name]
			joined := strings.NewReplacer(`\"`, `"`).Replace(answer)
			if said.Status[name] != 200 || !strings.Contains(joined, `"look"`) || !strings.Contains(joined, `"at"`) {
				t.Errorf("%s is answered %d %s", name, said.Status[name], answer)
			}
			if !strings.HasSuffix(name, "true") && !strings.Contains(answer, "The answer to "+wire+" "+how+".") {
				t.Errorf("%s is answered %s", name, answer)
			}
		}
	}
	for name, end := range map[string]string{"messagestrue": "event: message_stop", "completionstrue": "data: [DONE]", "responsestrue": "event: response.completed"} {
		if !strings.Contains(said.Answers[name], end) {
			t.Errorf("%s ends without %q: %s", name, end, said.Answers[name])
		}
	}
	if said.Status["wrong"] != 401 || said.Status["models"] != 200 {
		t.Errorf("a wrong token is answered %d, the list of models %d", said.Status["wrong"], said.Status["models"])
	}
	token := said.Env["ANTHROPIC_API_KEY"]
	if !strings.HasPrefix(token, "choir-box-") || said.Env["OPENAI_API_KEY"] != token {
		t.Errorf("the box's tokens are %q and %q", token, said.Env["OPENAI_API_KEY"])
	}
	if found := needlesOf(key).in([]byte(all)); len(found) > 0 {
		t.Errorf("the key is in the box: %v", found)
	}
	for _, req := range s.Requests() {
		if req.Role != "" {
			continue // the Director reads what the program printed
		}
		if req.Key != key || strings.Contains(string(req.Body), token) || strings.Contains(string(req.Body), "claude-x") {
			t.Errorf("the service was asked with the key %q: %s", req.Key, req.Body)
		}
	}
	metered := 0
	for _, e := range eventsOf(t, in, "usage.metered") {
		if m := data[contract.UsageMetered](t, e); e.Task == r.Tasks[0].ID {
			metered++
			if e.Run != p.Run || m.Outcome != "ok" || m.Usage.TokensIn != 70 || m.Usage.TokensOut != 11 || m.Provider != "anthropic" {
				t.Errorf("metered: %s", e.Data)
			}
		} else if e.Task != "" {
			t.Errorf("metered for task %s: %s", e.Task, e.Data)
		}
	}
	if metered != 6 {
		t.Errorf("%d calls were metered; six were made", metered)
	}

	read(1, &said)
	if said.Status["messagesfalse"] != 402 || said.Status["completionstrue"] != 429 || !strings.Contains(said.Answers["responsesfalse"], "budget") {
		t.Errorf("without a budget the program is answered %v %v", said.Status, said.Answers)
	}
	if again := said.Env["ANTHROPIC_API_KEY"]; again == token {
		t.Error("two boxes have the same token")
	}
	var lonely struct {
		Vars    []string
		Status  int
		Refused string
	}
	read(2, &lonely)
	if len(lonely.Vars) > 0 || lonely.Status != 0 || !strings.Contains(lonely.Refused, "ECONNREFUSED") {
		t.Errorf("without the grant a program has %+v", lonely)
	}
}
