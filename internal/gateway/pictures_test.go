package gateway_test

import (
	"bytes"
	"errors"
	"image"
	"image/png"
	"net/http"
	"strings"
	"testing"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/gateway"
	"choir.dev/choiros/test/modelserver"
)

// TestARefusedPictureEndsNothing shows that a request whose pictures a service refuses is made once more without them: one that it
// can't read stays in the conversation, and would end the task. What it refuses for another reason stays refused.
func TestARefusedPictureEndsNothing(t *testing.T) {
	var drawn bytes.Buffer
	if err := png.Encode(&drawn, image.NewGray(image.Rect(0, 0, 3, 3))); err != nil {
		t.Fatal(err)
	}
	shown := contract.Image{Media: "image/png", Ref: contract.NewBlobRef([32]byte{1}), Bytes: int64(drawn.Len())}
	store := pictures{shown.Ref: drawn.Bytes()}
	for _, wire := range wires {
		for status, want := range map[int]int{http.StatusBadRequest: 2, http.StatusUnprocessableEntity: 2, http.StatusRequestEntityTooLarge: 2, http.StatusUnauthorized: 1} {
			for _, with := range []bool{true, false} {
				turn := modelserver.Turn{Fault: &modelserver.Fault{Kind: "status", Status: status}}
				g, s, _ := play(t, wire, func(o *gateway.Options) { o.Blobs = store }, turn, modelserver.Turn{Text: "I can't see it.", Repeat: true})
				sc := scope()
				sc.Model = map[modelserver.Wire]string{modelserver.Anthropic: "anthropic/claude-sonnet-4-6", modelserver.OpenAI: "openai/gpt-5.4", modelserver.Responses: "openai/gpt-5.4"}[wire]
				if sc.Model == "" {
					continue // the models of the last are tried by its own tests
				}
				req := say("look")
				if with {
					req.Messages[0].Parts = append(req.Messages[0].Parts, contract.Part{Image: &shown})
				} else if want == 2 {
					want = 1
				}
				got, err := g.Turn(t.Context(), sc, req, nil)
				reqs := s.Requests()
				if len(reqs) != want || (err == nil) != (want == 2) {
					t.Fatalf("%s, %d, with a picture %t: %d requests, %+v, %v", wire, status, with, len(reqs), got, err)
				}
				var te *contract.TurnError
				if err != nil && !errors.As(err, &te) {
					t.Errorf("%s, %d: %v", wire, status, err)
				}
				if want == 2 && (!strings.Contains(string(reqs[0].Body), `"type":"image`) && !strings.Contains(string(reqs[0].Body), "input_image") || strings.Contains(string(reqs[1].Body), `"type":"image`) || !strings.Contains(string(reqs[1].Body), "its service refused a request with the pictures")) {
					t.Errorf("%s, %d: asked again with %s", wire, status, reqs[1].Body)
				}
			}
		}
	}
}
