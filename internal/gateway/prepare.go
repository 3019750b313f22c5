package gateway

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/gateway/provider"
	"choir.dev/choiros/internal/tool/schema"
)

// Blobs is where the pictures of a conversation are. It may be any blob.Store.
type Blobs interface {
	Open(ctx context.Context, cid contract.CID, ref contract.BlobRef) (io.ReadSeekCloser, int64, error)
}

// What services take of pictures in one request. The vendor with the tightest bound takes 5 MiB of base64 each, and
// 32 MB in all.
const (
	maxPictures     = 20
	maxPicture      = 3_900_000
	maxPictureBytes = 24 << 20 // of base64
)

// prepared is a request as it is sent.
type prepared struct {
	request  contract.TurnRequest
	pictures map[contract.BlobRef]provider.Picture
	check    *schema.Schema // of the answer's text; nil if there is none, or only the service can tell
}

// prepare makes the request that a model is sent of the one that was made: see provider.Conversation. Pictures that it
// can't look at are told in words, and a form of the answer that its service can't enforce is asked for in the system
// prompt.
func (g *Gateway) prepare(ctx context.Context, s Scope, k *candidate, req contract.TurnRequest) (prepared, error) {
	p, t := prepared{request: req}, k.target
	seen := map[string]bool{}
	for i, tool := range req.Tools {
		if !provider.ToolName(tool.Name) || seen[tool.Name] {
			return p, turnError(provider.CodeInvalid, fmt.Sprintf("tools[%d].name is %q; it must be of letters, digits, _ and -, at most 64, and no other tool's", i, short(tool.Name)), false)
		}
		seen[tool.Name] = true
	}
	p.request.Messages = provider.Conversation(req.Messages, t.provider)
	var shown map[place]bool
	why := "it could not be read, is no picture, is over the limits of size and number, or was in a request that its service refused"
	switch {
	case !t.info.Images:
		why = "your model can't look at pictures"
	case k.blind:
		why = "its service refused a request with the pictures of this conversation, of which it may be another one that it can't read"
	default:
		p.pictures, shown = g.pictures(ctx, s, t, p.request.Messages)
	}
	for i, m := range p.request.Messages {
		p.request.Messages[i] = tell(i, m, shown, why)
	}
	if req.Output == nil {
		return p, nil
	}
	var err error
	p.check, err = schema.Compile(req.Output.Schema)
	switch {
	case t.info.Structured:
		return p, nil
	case err != nil:
		return p, turnError(provider.CodeInvalid, fmt.Sprintf("output.schema: model %s can't be held to a form by its service, and here only simple schemas can be checked: %v", t.provider+"/"+t.model, err), false)
	}
	p.request.Output = nil
	p.request.System = strings.TrimSpace(req.System + "\n\n## The form of your answer\n\nWhen you answer without calling a tool, answer with nothing but one JSON document that this JSON Schema describes, without a code fence and without a word before or after it:\n\n" + string(req.Output.Schema))
	return p, nil
}

// place is where a picture is in a conversation: the message, its part, and which of the part's pictures.
type place [3]int

// pictures reads the conversation's pictures, the newest first, as long as the bounds allow, and says which are shown. One that
// comes again counts again, since it is sent again.
func (g *Gateway) pictures(ctx context.Context, s Scope, t target, messages []contract.Message) (map[contract.BlobRef]provider.Picture, map[place]bool) {
	if g.opt.Blobs == nil {
		return nil, nil
	}
	out, shown := map[contract.BlobRef]provider.Picture{}, map[place]bool{}
	total, looked := 0, 0
	each := func(at place, i contract.Image) {
		if g.refused.has(t.provider+"/"+t.model, i.Ref) {
			return
		}
		if looked++; looked > maxPictures {
			return
		}
		known, ok := out[i.Ref]
		if !ok {
			var err error
			if known, err = g.picture(ctx, s.CID, i.Ref); err != nil {
				g.opt.Logger.Debug("a picture is not shown to the model", "ref", i.Ref, "err", err)
				return
			}
		}
		if total+len(known.Base64) > maxPictureBytes {
			return
		}
		total += len(known.Base64)
		out[i.Ref], shown[at] = known, true
	}
	for m := len(messages) - 1; m >= 0; m-- {
		for i := len(messages[m].Parts) - 1; i >= 0; i-- {
			switch p := messages[m].Parts[i]; {
			case p.Image != nil:
				each(place{m, i}, *p.Image)
			case p.Return != nil && !p.Return.IsError: // services take none of a failed call
				for n, image := range p.Return.Images {
					each(place{m, i, n}, image)
				}
			}
		}
	}
	return out, shown
}

// picture reads one picture. What it is, its bytes say.
func (g *Gateway) picture(ctx context.Context, cid contract.CID, ref contract.BlobRef) (provider.Picture, error) {
	var p provider.Picture
	r, size, err := g.opt.Blobs.Open(ctx, cid, ref)
	if err != nil {
		return p, err
	}
	defer r.Close()
	if size > maxPicture {
		return p, fmt.Errorf("it has %d bytes, which is over the limit of %d", size, maxPicture)
	}
	content, err := io.ReadAll(io.LimitReader(r, maxPicture+1))
	if err != nil {
		return p, err
	}
	p.Media = http.DetectContentType(content)
	switch p.Media {
	case "image/png", "image/jpeg", "image/gif", "image/webp":
	default:
		return p, fmt.Errorf("it is %s, and no picture", p.Media)
	}
	if len(content) > maxPicture {
		return p, errors.New("it is over the limit")
	}
	p.Base64 = base64.StdEncoding.EncodeToString(content)
	return p, nil
}

// tell puts a sentence in the place of each picture that is not sent, which says why.
func tell(number int, m contract.Message, shown map[place]bool, why string) contract.Message {
	words := func(i contract.Image) string {
		return fmt.Sprintf("[Here was a picture (%s, %d bytes) that you are not shown: %s.]", i.Media, i.Bytes, why)
	}
	if !provider.Pictured(m) {
		return m
	}
	out := contract.Message{Role: m.Role, Parts: make([]contract.Part, 0, len(m.Parts))}
	for at, p := range m.Parts {
		switch {
		case p.Image != nil:
			if !shown[place{number, at}] {
				p = contract.Part{Text: words(*p.Image)}
			}
		case p.Return != nil && len(p.Return.Images) > 0:
			ret := *p.Return
			ret.Images = nil
			for n, i := range p.Return.Images {
				if shown[place{number, at, n}] && !ret.IsError {
					ret.Images = append(ret.Images, i)
				} else {
					ret.Content = strings.TrimSpace(ret.Content + "\n" + words(i))
				}
			}
			p.Return = &ret
		}
		out.Parts = append(out.Parts, p)
	}
	return out
}

// CodeMalformed is the code of a TurnError when the answer does not have the form that the request's Output asks for.
const CodeMalformed = "malformed"

// conform checks the answer's text against the form that was asked for. A turn that calls tools, or that was cut or
// refused, is none that has it yet. A document in a code fence is taken out of it.
func (p prepared) conform(out *outcome) error {
	if p.check == nil || out.stop != contract.StopEnd {
		return nil
	}
	var text string
	parts := []contract.Part{}
	for _, part := range out.message.Parts {
		if part.Text != "" {
			text += part.Text
			continue
		}
		parts = append(parts, part)
	}
	document := []byte(strings.TrimSpace(text))
	if inner, ok := bytes.CutPrefix(document, []byte("```")); ok {
		_, inner, _ = bytes.Cut(inner, []byte("\n"))
		document = bytes.TrimSpace(bytes.TrimSuffix(bytes.TrimSpace(inner), []byte("```")))
	}
	if err := p.check.Validate(json.RawMessage(document)); err != nil {
		return &provider.Error{Code: CodeMalformed, Message: "the answer does not have the form that was asked for: " + err.Error(), Retriable: true, Err: err}
	}
	out.message.Parts = append(parts, contract.Part{Text: string(document)})
	return nil
}
