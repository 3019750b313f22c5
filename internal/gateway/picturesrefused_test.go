package gateway_test

import (
	"bytes"
	"fmt"
	"image"
	"image/png"
	"net/http"
	"strings"
	"testing"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/gateway"
	"choir.dev/choiros/test/modelserver"
)

func grey(t *testing.T) (contract.Image, pictures) {
	var drawn bytes.Buffer
	if err := png.Encode(&drawn, image.NewGray(image.Rect(0, 0, 3, 3))); err != nil {
		t.Fatal(err)
	}
	i := contract.Image{Media: "image/png", Ref: contract.NewBlobRef([32]byte{1}), Bytes: int64(drawn.Len())}
	return i, pictures{i.Ref: drawn.Bytes()}
}

func looked(images []contract.Image, failed bool) contract.TurnRequest {
	req := say("look")
	req.Messages = append(req.Messages,
		contract.Message{Role: contract.MessageAssistant, Parts: []contract.Part{{Call: &contract.ToolCall{ID: "c", Name: "read", Args: []byte(`{}`)}}}},
		contract.Message{Role: contract.MessageUser, Parts: []contract.Part{{Return: &contract.ToolReturn{ID: "c", Content: "seen", IsError: failed, Images: images}}}})
	return req
}

func refuses(status int, text string) modelserver.Turn {
	return modelserver.Turn{Text: text, Fault: &modelserver.Fault{Kind: "status", Status: status}}
}

// TestARefusalThatIsKnownIsNotAskedForAgain shows that later turns of a conversation don't send refused pictures again.
func TestARefusalThatIsKnownIsNotAskedForAgain(t *testing.T) {
	i, store := grey(t)
	blind := modelserver.Turn{Text: "I can't see it."}
	g, s, _ := play(t, modelserver.Anthropic, func(o *gateway.Options) { o.Blobs = store },
		refuses(400, "could not process image"), blind, blind, blind)
	sc := scope()
	for range 3 {
		if _, err := g.Turn(t.Context(), sc, looked([]contract.Image{i}, false), nil); err != nil {
			t.Fatal(err)
		}
	}
	if n := len(s.Requests()); n != 4 || strings.Contains(string(s.Requests()[2].Body)+string(s.Requests()[3].Body), `"type":"image`) ||
		!strings.Contains(string(s.Requests()[3].Body), "was in a request that its service refused") {
		t.Errorf("three turns of one conversation were %d requests", n)
	}
}

// TestAPictureThatWasTakenIsNotBlamed shows that of the pictures of a refused request those stay that its service had taken before.
func TestAPictureThatWasTakenIsNotBlamed(t *testing.T) {
	i, store := grey(t)
	bad := contract.Image{Media: "image/png", Ref: contract.NewBlobRef([32]byte{2}), Bytes: 9}
	store[bad.Ref] = append(store[i.Ref][:len(store[i.Ref]):len(store[i.Ref])], "more"...)
	g, s, _ := play(t, modelserver.Anthropic, func(o *gateway.Options) { o.Blobs = store },
		modelserver.Turn{Text: "Grey."}, refuses(400, "could not process image"), modelserver.Turn{Text: "Grey.", Repeat: true})
	for _, images := range [][]contract.Image{{i}, {i, bad}, {i, bad}} {
		if _, err := g.Turn(t.Context(), scope(), looked(images, false), nil); err != nil {
			t.Fatal(err)
		}
	}
	reqs := s.Requests()
	if n := strings.Count(string(reqs[len(reqs)-1].Body), `"type":"image`); len(reqs) != 4 || n != 1 {
		t.Errorf("%d requests, and the last has %d pictures", len(reqs), n)
	}
}

// TestPicturesThatAreNotSentAreNotBlamed shows that a refusal is not laid to pictures of a failed call, which are told in words.
func TestPicturesThatAreNotSentAreNotBlamed(t *testing.T) {
	i, store := grey(t)
	g, s, _ := play(t, modelserver.Anthropic, func(o *gateway.Options) { o.Blobs = store },
		refuses(400, "tools.0.input_schema: invalid"), modelserver.Turn{Text: "fine", Repeat: true})
	_, err := g.Turn(t.Context(), scope(), looked([]contract.Image{i}, true), nil)
	reqs := s.Requests()
	if strings.Contains(string(reqs[0].Body), `"type":"image"`) {
		t.Fatal("it was sent")
	}
	if len(reqs) != 1 {
		t.Errorf("%d requests without a picture, %v; the second says: %t", len(reqs), err, strings.Contains(string(reqs[1].Body), "refused a request with the pictures"))
	}
}

// TestFailedCallsTakeNoPlaceOfPictures shows that pictures that are never shown don't count to the 20 that are.
func TestFailedCallsTakeNoPlaceOfPictures(t *testing.T) {
	i, store := grey(t)
	g, s, _ := play(t, modelserver.Anthropic, func(o *gateway.Options) { o.Blobs = store }, modelserver.Turn{Text: "fine", Repeat: true})
	req := looked([]contract.Image{i}, false)
	for n := range 5 {
		id := fmt.Sprint("f", n)
		req.Messages = append(req.Messages,
			contract.Message{Role: contract.MessageAssistant, Parts: []contract.Part{{Call: &contract.ToolCall{ID: id, Name: "bash", Args: []byte(`{}`)}}}},
			contract.Message{Role: contract.MessageUser, Parts: []contract.Part{{Return: &contract.ToolReturn{ID: id, Content: "no", IsError: true, Images: []contract.Image{i, i, i, i}}}}})
	}
	if _, err := g.Turn(t.Context(), scope(), req, nil); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(s.Requests()[0].Body), `"type":"image"`) {
		t.Errorf("the one picture that may be shown was not")
	}
}

// TestEveryWayOfRefusingPicturesEndsNothing shows that pictures may be refused with other statuses, too.
func TestEveryWayOfRefusingPicturesEndsNothing(t *testing.T) {
	i, store := grey(t)
	for status, text := range map[int]string{http.StatusNotFound: "No endpoints found that support image input", http.StatusUnsupportedMediaType: "unsupported image",
		http.StatusInternalServerError: "image input is not supported - hint: if this is unexpected, you may need to provide the mmproj", http.StatusNotImplemented: "images are not implemented"} {
		r := refuses(status, text)
		g, s, _ := play(t, modelserver.OpenAI, func(o *gateway.Options) { o.Blobs = store }, r, modelserver.Turn{Text: "I can't see it.", Repeat: true})
		if _, err := g.Turn(t.Context(), scope(), looked([]contract.Image{i}, false), nil); err != nil {
			t.Errorf("%d: %d requests, %v", status, len(s.Requests()), err)
		}
	}
}

// TestARefusedKeyIsNotLaidToPictures shows that a refusal of who asks is none of pictures, in a stream neither.
func TestARefusedKeyIsNotLaidToPictures(t *testing.T) {
	i, store := grey(t)
	for _, kind := range []string{"authentication_error", "permission_error"} {
		b := modelserver.Turn{Text: "invalid x-api-key", Stop: "failed", Code: kind}
		g, s, _ := play(t, modelserver.Anthropic, func(o *gateway.Options) { o.Blobs = store }, b, b, modelserver.Turn{Text: "fine", Repeat: true})
		_, err := g.Turn(t.Context(), scope(), looked([]contract.Image{i}, false), nil)
		if n := len(s.Requests()); n != 1 || err == nil {
			t.Errorf("%s: %d requests, %v", kind, n, err)
		}
	}
}

// TestARefusalForAnotherReasonIsTold shows that what is refused without pictures, too, is told as what it is.
func TestARefusalForAnotherReasonIsTold(t *testing.T) {
	i, store := grey(t)
	r := refuses(400, "tools.0.input_schema: invalid")
	g, s, _ := play(t, modelserver.Anthropic, func(o *gateway.Options) { o.Blobs = store }, r, r, r, r)
	_, err := g.Turn(t.Context(), scope(), looked([]contract.Image{i}, false), nil)
	if err == nil || !strings.Contains(err.Error(), "input_schema") || len(s.Requests()) != 2 {
		t.Errorf("%d %v", len(s.Requests()), err)
	}
}
