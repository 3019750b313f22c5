package e2e_test

import (
	"bytes"
	"encoding/base64"
	"image"
	"image/png"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/test/modelserver"
)

// TestAPictureIsRead shows through the binary that a task looks at a picture of the workspace, of which a service that
// can't read it refuses the request, and that the task goes on all the same.
func TestAPictureIsRead(t *testing.T) {
	t.Parallel()
	var drawn bytes.Buffer
	if err := png.Encode(&drawn, image.NewGray(image.Rect(0, 0, 40, 30))); err != nil {
		t.Fatal(err)
	}
	looks := object{"kind": "inspect", "goal": "what is on the chart", "tools": []any{"read"}}
	in, models := startModel(t, modelserver.Anthropic, modelserver.Script{Turns: join(
		director(delegate(looks), report("done", "It is grey.")),
		turnsOf("associate", "what is on the chart", modelserver.Turn{Calls: call("read", object{"path": "workspace/chart.png"})},
			modelserver.Turn{Text: "could not process image", Fault: &modelserver.Fault{Kind: "status", Status: 400}}, finish("ok", "Grey."))),
	})
	file := filepath.Join(t.TempDir(), "chart.png")
	if err := os.WriteFile(file, drawn.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
	in.Must(t, "files", "put", file, "workspace/chart.png")
	p := prompt(t, in, "Plan first, then look at the chart and tell me at length and in several sentences what is to be seen on it, please.")
	if p.Status != string(contract.RunDone) {
		t.Fatalf("%+v\n%s", p, in.Must(t, "runs", p.Run))
	}
	shown, refused := 0, 0
	for _, r := range models.Requests() {
		if strings.Contains(string(r.Body), base64.StdEncoding.EncodeToString(drawn.Bytes())) {
			shown++
		}
		if strings.Contains(string(r.Body), "refused a request with the pictures") {
			refused++
		}
	}
	if shown != 1 || refused != 1 {
		t.Errorf("%d requests showed it, and %d told of it", shown, refused)
	}
	for _, e := range eventsOf(t, in, "tool.returned") {
		if r := data[contract.ToolReturned](t, e); r.Name == "read" && (len(r.Images) != 1 || r.Images[0].Media != "image/png" || !strings.Contains(r.Output, "chart.png")) {
			t.Errorf("the log has %+v", r)
		}
	}
}
