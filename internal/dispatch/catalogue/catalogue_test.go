package catalogue_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/dispatch/catalogue"
	"choir.dev/choiros/internal/tool"
)

// TestWhatComesWithAToolIsGranted: a task that lists bash can look at what it runs in the background, and one
// that only looks gets nothing that writes by that.
func TestWhatComesWithAToolIsGranted(t *testing.T) {
	c, err := catalogue.New(nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, k := range []struct {
		kind  contract.TaskKind
		lists []string
		want  []string
	}{
		{contract.KindAgent, []string{"bash"}, []string{"bash", "bash_output", "bash_kill", "finish"}},
		{contract.KindAgent, []string{"read", "edit"}, []string{"read", "edit", "multi_edit", "finish"}},
		{contract.KindAgent, []string{"read"}, []string{"read", "finish"}},
		{contract.KindInspect, []string{"read", "edit", "bash"}, []string{"read", "finish"}},
	} {
		var got []string
		for _, tool := range c.Offered(contract.DirectorTask{Kind: k.kind, Tools: k.lists}) {
			got = append(got, tool.Name)
		}
		if !slices.Equal(got, k.want) {
			t.Errorf("%s with %v is offered %v", k.kind, k.lists, got)
		}
	}
}

// TestWhatIsAddedIsOfferedUntilItIsReplaced adds a tool whose description would end the Director's schema, and
// that can't be undone: a task may use it because a person granted it, and nobody once it is taken away.
func TestWhatIsAddedIsOfferedUntilItIsReplaced(t *testing.T) {
	c, err := catalogue.New(nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	added := catalogue.HostTool{Outside: &catalogue.Outside{Kind: contract.EffectMCP, Target: "a send"}, Tool: tool.Tool{Name: "mcp__a__send", Granted: true, Effects: []tool.Effect{tool.Network, tool.Irreversible}, Callers: []tool.Caller{tool.Agent},
		Limits: tool.Limits{In: 1 << 10, Out: 1 << 10, Time: time.Minute}, Description: `Sends "mail\", "properties":{}}` + "\n%s", Schema: tool.Object("")},
		Call: func(context.Context, catalogue.HostCall) (tool.Result, error) { return tool.Result{}, nil }}
	task := contract.DirectorTask{Kind: contract.KindAgent, Tools: []string{"mcp__a__send"}}.WithDefaults()
	offered := func() bool {
		return slices.ContainsFunc(c.Offered(task), func(t tool.Tool) bool { return t.Name == "mcp__a__send" })
	}
	told := func() string {
		delegate, _ := c.Lookup("delegate")
		return string(delegate.Schema)
	}
	if err := c.Add([]catalogue.HostTool{added}); err != nil {
		t.Fatal(err)
	}
	if !offered() || !slices.Contains(c.ToolNames(contract.KindAgent), "mcp__a__send") || !strings.Contains(told(), "mcp__a__send (Sends") {
		t.Errorf("not offered: %v %s", c.ToolNames(contract.KindAgent), told())
	}
	if _, ok := c.OnHost("mcp__a__send"); !ok {
		t.Error("nobody carries it out")
	}
	added.Granted = false
	if err := c.Add([]catalogue.HostTool{added}); err != nil {
		t.Fatal(err)
	}
	if offered() || strings.Contains(told(), "mcp__a__send") {
		t.Error("offered without a grant")
	}
	if err := c.Add(nil); err != nil {
		t.Fatal(err)
	}
	if _, ok := c.Lookup("mcp__a__send"); ok {
		t.Error("known after it was taken away")
	}
}
