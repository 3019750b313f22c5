package boxtools

import (
	"context"
	"encoding/json"
	"sync"
	"time"

	"choir.dev/choiros/internal/tool"
)

// Names of the tools that other packages call by name: the steps of a task, and the parts
// of a verification.
const (
	Run        = "run"
	Write      = "write"
	Patch      = "apply_patch"
	Facts      = "facts"
	Check      = "check"
	CheckTheme = "check_theme"
	Briefing   = "briefing"
)

// declared is a tool and the method that carries it out.
type declared struct {
	tool.Tool
	call func(b *Box, ctx context.Context, args json.RawMessage, base string) (Result, error)
}

// with declares a tool whose method takes its arguments.
func with[A any](t tool.Tool, f func(*Box, context.Context, A) (Result, error)) declared {
	return since(t, func(b *Box, ctx context.Context, a A, _ string) (Result, error) { return f(b, ctx, a) })
}

// since declares a tool whose method also takes the commit that the task started from.
func since[A any](t tool.Tool, f func(*Box, context.Context, A, string) (Result, error)) declared {
	t.Executor = tool.Box
	return declared{t, func(b *Box, ctx context.Context, raw json.RawMessage, base string) (Result, error) {
		var a A
		if err := json.Unmarshal(raw, &a); err != nil {
			return Result{}, refusal("arguments: " + err.Error())
		}
		return f(b, ctx, a, base)
	}}
}

// Values that most declarations share.
var (
	reads    = []tool.Effect{tool.Reads}
	edits    = []tool.Effect{tool.Reads, tool.Writes} // also of who looks at a command that goes on writing
	commands = []tool.Effect{tool.Reads, tool.Writes, tool.Network}

	agents  = []tool.Caller{tool.Agent}
	eyes    = []tool.Caller{tool.Agent, tool.Director} // both loops look
	steps   = []tool.Caller{tool.Step}
	both    = []tool.Caller{tool.Agent, tool.Step}
	checker = []tool.Caller{tool.Check}
	opening = []tool.Caller{tool.Opening}

	small   = tool.Limits{In: 64 << 10, Out: MaxOutput, Time: 5 * time.Minute}
	large   = tool.Limits{In: maxArgs, Out: MaxOutput, Time: 5 * time.Minute}
	command = tool.Limits{In: 512 << 10, Out: MaxOutput, Time: 11 * time.Minute}
	day     = tool.Limits{In: maxArgs, Out: MaxOutput, Time: 24*time.Hour + time.Minute} // the caller bounds its time
	survey  = tool.Limits{In: maxArgs, Out: maxData, Time: 10 * time.Minute}
	counted = tool.Limits{In: maxArgs, Out: maxData, Time: day.Time} // its data name the tests that ran
)

const (
	argvProperty   = `"argv":{"type":"array","minItems":1,"maxItems":256,"items":{"type":"string","maxLength":65536}}`
	cwdProperty    = `"cwd":{"type":"string","maxLength":4096}`
	longTime       = `"timeout_s":{"type":"integer","minimum":1,"maximum":86400}`
	pathProperty   = `"path":{"type":"string","minLength":1,"maxLength":4096}`
	editProperties = `"old":{"type":"string","minLength":1,"maxLength":500000},
			"new":{"type":"string","maxLength":500000},
			"all":{"type":"boolean","description":"replace every occurrence"}`
	handleProperty  = `"handle":{"type":"string","minLength":1,"maxLength":64,"description":"as bash gave it"}`
	mayPath         = `"path":{"type":"string","maxLength":4096}`
	restoreProperty = `"restore":{"type":"array","maxItems":5000,"items":{"type":"string","maxLength":16384},"description":"paths to put back first as the base has them"}`
)

// The declarations are made at their first use: making them takes longer than a box's guest
// takes to start, and most boxes never call a tool.
var table = sync.OnceValue(func() []declared {
	return []declared{
		with(tool.Tool{Name: "read", Effects: reads, Limits: small, Callers: eyes,
			Description: "Read a text file of the workspace, look at a picture (PNG, JPEG, GIF, WebP), or read the output of a command by the path that was told. Lines are numbered from 1; a tab follows the number. The last line says which lines of how many these are; read on with offset.",
			Schema: tool.Object(`"path":{"type":"string","minLength":1,"maxLength":4096,"description":"relative to the workspace's root"},
			"offset":{"type":"integer","minimum":1,"description":"first line to show"},
			"limit":{"type":"integer","minimum":1,"maximum":5000,"description":"how many lines; as many as fit when left out"}`, "path")}, (*Box).read),
		with(tool.Tool{Name: Write, Effects: edits, Limits: large, Callers: both, OneFile: true,
			Description: "Write a whole file, making directories as needed. An existing file must have been read before; it is replaced and keeps its mode. To change a part of a file use edit.",
			Schema: tool.Object(pathProperty+`,
			"content":{"type":"string","maxLength":1000000},
			"executable":{"type":"boolean"},
			"overwrite":{"type":"boolean","description":"replace a file without having read it, because its content does not matter"}`, "path", "content")}, (*Box).write),
		with(tool.Tool{Name: "edit", Effects: edits, Limits: large, Callers: agents, OneFile: true,
			Description: "Replace text in a file. old must be at one place only, unless all is true; give it as read shows it, without the line numbers. If it is nowhere to the byte, whole lines are also found that differ in indentation, trailing blanks or line ends.",
			Schema:      tool.Object(pathProperty+","+editProperties, "path", "old", "new")}, (*Box).edit),
		with(tool.Tool{Name: "multi_edit", Effects: edits, Limits: large, Callers: agents, With: "edit", OneFile: true,
			Description: "Make several edits of one file, each in the text that the one before left: all of them, or none if one does not fit.",
			Schema: tool.Object(pathProperty+`,
			"edits":{"type":"array","minItems":1,"maxItems":100,"items":{"type":"object","additionalProperties":false,"required":["old","new"],"properties":{`+editProperties+`}}}`, "path", "edits")}, (*Box).multiEdit),
		with(tool.Tool{Name: Patch, Effects: edits, Limits: large, Callers: both,
			Description: "Change several files by a patch, all of them or none. It is a unified diff, or *** Begin Patch with *** Add File: path, *** Update File: path (then @@ and lines that begin with a blank, - or +), *** Delete File: path, and *** End Patch. A hunk goes where its lines are, so line numbers may be wrong; lines that are at several places need more context.",
			Schema:      tool.Object(`"patch":{"type":"string","minLength":1,"maxLength":600000}`, "patch")}, (*Box).applyPatch),
		with(tool.Tool{Name: "bash", Effects: commands, Limits: command, Callers: agents,
			Description: "Run a shell command in the workspace's box. The next command starts in the folder where this one ended, with the variables that it exported. What is written to standard output and standard error comes in its order; of a long output the beginning and the end are shown, and all of it is kept in a file. There is no network beyond what the task was granted.",
			Schema: tool.Object(`"command":{"type":"string","minLength":1,"maxLength":65536},
			"cwd":{"type":"string","maxLength":4096,"description":"the folder to start in, relative to the workspace's root; where the last command ended when left out"},
			"timeout_s":{"type":"integer","minimum":1,"maximum":600,"description":"120 when left out; none in the background"},
			"background":{"type":"boolean","description":"don't wait: answers with a handle for bash_output and bash_kill"},
			"fresh":{"type":"boolean","description":"start with the folder and the variables that the box began with"}`, "command")}, (*Box).bash),
		with(tool.Tool{Name: "bash_output", Effects: edits, Limits: small, Callers: agents, With: "bash",
			Description: "What a command in the background has written since the last look, whether it still runs, and its exit code. Without a handle: the list of these commands.",
			Schema: tool.Object(handleProperty + `,
			"wait_s":{"type":"integer","minimum":0,"maximum":60,"description":"wait so long for something new"}`)}, (*Box).bashOutput),
		with(tool.Tool{Name: "bash_kill", Effects: edits, Limits: small, Callers: agents, With: "bash",
			Description: "End a command in the background.",
			Schema:      tool.Object(handleProperty, "handle")}, (*Box).bashKill),
		with(tool.Tool{Name: "grep", Effects: reads, Limits: small, Callers: eyes,
			Description: "Find lines that match a regular expression (RE2). Dependency and cache folders are skipped.",
			Schema: tool.Object(`"pattern":{"type":"string","minLength":1,"maxLength":2000},
			"path":{"type":"string","maxLength":4096,"description":"file or folder to search; the whole workspace when left out"},
			"glob":{"type":"string","maxLength":1000,"description":"only files whose path or name matches, such as *.go"},
			"ignore_case":{"type":"boolean"}`, "pattern")}, (*Box).grep),
		with(tool.Tool{Name: "glob", Effects: reads, Limits: small, Callers: eyes,
			Description: "List files whose path matches a pattern, such as **/*.ts. Dependency and cache folders are skipped.",
			Schema: tool.Object(`"pattern":{"type":"string","minLength":1,"maxLength":1000},
			"path":{"type":"string","maxLength":4096,"description":"folder to start in"}`, "pattern")}, (*Box).glob),
		with(tool.Tool{Name: "ls", Effects: reads, Limits: small, Callers: eyes,
			Description: "List a folder: type, size and name of each entry.",
			Schema:      tool.Object(mayPath)}, (*Box).ls),
		since(tool.Tool{Name: "git_status", Effects: reads, Limits: small, Callers: agents,
			Description: "What this task has changed against the checkpoint it started from, one path per line.",
			Schema:      tool.Object(mayPath)}, (*Box).gitStatus),
		since(tool.Tool{Name: "git_diff", Effects: reads, Limits: small, Callers: agents,
			Description: "Unified diff of what this task has changed against the checkpoint it started from. New files are listed by git_status.",
			Schema:      tool.Object(mayPath)}, (*Box).gitDiff),

		with(tool.Tool{Name: Run, Effects: commands, Limits: day, Callers: steps,
			Description: "Run a command without a shell.",
			Schema:      tool.Object(argvProperty+","+cwdProperty+","+longTime, "argv")}, (*Box).run),
		with(tool.Tool{Name: Facts, Effects: edits, Limits: survey, Callers: checker,
			Description: "What the projects around the given paths are made of.",
			Schema: tool.Object(`"paths":{"type":"array","maxItems":5000,"items":{"type":"string","maxLength":16384}},
			"base":{"type":"boolean","description":"as the commit the task started from has them"},`+restoreProperty, "paths")}, (*Box).facts),
		with(tool.Tool{Name: Check, Effects: commands, Limits: counted, Callers: checker,
			Description: "Run one check of a verification and count its tests.",
			Schema:      tool.Object(argvProperty+","+cwdProperty+","+longTime+`,"runner":{"type":"string","maxLength":64},`+restoreProperty, "argv", "runner")}, (*Box).check),
		with(tool.Tool{Name: CheckTheme, Effects: reads, Limits: small, Callers: checker,
			Description: "Check that a file is a valid theme.",
			Schema:      tool.Object(pathProperty, "path")}, (*Box).checkTheme),
		with(tool.Tool{Name: Briefing, Effects: reads, Limits: survey, Callers: opening,
			Description: "What a loop is told of the tree and the machine before its first turn.",
			Schema: tool.Object(`"about":{"type":"string","maxLength":65536},
			"programs":{"type":"boolean","description":"ask programs for their versions, too"}`)}, (*Box).briefing),
	}
})

// Declared lists the tools of a box, in the order in which models see them.
func Declared() []tool.Tool {
	out := make([]tool.Tool, len(table()))
	for i, d := range table() {
		out[i] = d.Tool
	}
	return out
}

// served are the tools that a box's guest carries out.
var served = sync.OnceValue(func() server {
	r, err := tool.NewRegistry(Declared()...)
	if err != nil {
		panic(err) // a declaration of this package: any test of it sees this
	}
	s := server{Registry: r, calls: map[string]declared{}}
	for _, d := range table() {
		s.calls[d.Name] = d
	}
	return s
})

type server struct {
	*tool.Registry
	calls map[string]declared
}
