package catalogue_test

import (
	"slices"
	"testing"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/dispatch/catalogue"
)

// TestWhatComesWithAToolIsGranted: a task that lists bash can look at what it runs in the background, and one
// that only looks gets nothing that writes by that.
func TestWhatComesWithAToolIsGranted(t *testing.T) {
	c, err := catalogue.New(nil)
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
