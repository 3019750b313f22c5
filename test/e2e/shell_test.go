package e2e_test

import (
	"testing"

	"choir.dev/choiros/test/modelserver"
)

// TestAnAgentsShellStays: in a real box, a command goes on where the last one ended, its whole output can be read
// in the box, and what runs in the background is looked at and ended.
func TestAnAgentsShellStays(t *testing.T) {
	t.Parallel()
	goal := "keep a shell"
	bash := func(match, command string, background bool) modelserver.Turn {
		return modelserver.Turn{Match: match, Calls: call("bash", object{"command": command, "background": background})}
	}
	output := modelserver.Turn{Match: `running in the background as`, Capture: map[string]string{"handle": `background as (bg1_\w+)`},
		Calls: call("bash_output", object{"handle": "{{handle}}", "wait_s": 60})}
	turns := append(turnsOf("director", goal,
		delegate(object{"kind": "agent", "goal": goal, "verify": object{"profile": "none"},
			"tools": []any{"bash", "read", "write", "edit", "apply_patch"}}),
		report("done", "It stayed."),
	), turnsOf("associate", goal,
		bash("", "mkdir -p workspace/s && cd workspace/s && export A=kept", false),
		bash("exit code 0, in workspace/s", "echo $A >a.txt; seq 20000; pwd >&2", false),
		modelserver.Turn{Match: `20000\n/computer/workspace/s`, Capture: map[string]string{"path": `the output is in (/tmp/choir-output-[^ ,]+\.txt)`},
			Calls: call("read", object{"path": "{{path}}", "offset": 12345, "limit": 1})},
		bash(` 12345\t12345`, "echo from $A; sleep 1000", true),
		output,
		modelserver.Turn{Match: `is running, for \S+ s\nfrom kept`, Calls: call("bash_kill", object{"handle": "{{handle}}"})},
		modelserver.Turn{Match: `is killed`, Calls: call("write", object{"path": "workspace/s/a.txt", "content": "mine"})},
		modelserver.Turn{Match: `you have not read it`, Calls: call("multi_edit", object{"path": "workspace/s/a.txt", "edits": []any{object{"old": "kept", "new": "b"}, object{"old": "b", "new": "c"}}})},
		modelserver.Turn{Match: `edited workspace/s/a.txt`, Calls: call("apply_patch", object{"patch": "*** Begin Patch\n*** Update File: workspace/s/a.txt\n@@\n-c\n+d\n*** Add File: workspace/s/b.txt\n+new\n*** End Patch\n"})},
		modelserver.Turn{Match: `created workspace/s/b.txt`, Calls: call("finish", object{"status": "ok", "summary": "done"})},
	)...)
	in, s := startModel(t, modelserver.Anthropic, modelserver.Script{Turns: turns})
	if p := prompt(t, in, goal); p.code != 0 || p.Status != "done" || len(p.Tasks) != 1 || p.Tasks[0].Status != "ok" {
		t.Fatalf("%+v (turns left: %v)", p, s.Left())
	}
	for name, want := range map[string]string{"a.txt": "d\n", "b.txt": "new\n"} {
		if got := in.Must(t, "files", "cat", "workspace/s/"+name); got != want {
			t.Errorf("%s has %q", name, got)
		}
	}
}
