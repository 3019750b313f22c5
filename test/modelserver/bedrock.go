package modelserver

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws/protocol/eventstream"
)

// The credentials with which requests in Bedrock's format are signed, unless they have a bearer token.
const (
	AWSAccessKey = "AKIDMODELSERVER"
	AWSSecretKey = "modelserver+secret/key"
	AWSRegion    = "eu-central-1"
)

// bedrockRequest splits /model/MODEL/invoke-with-response-stream.
func bedrockRequest(path string) (model string, stream, ok bool) {
	rest, ok := strings.CutPrefix(path, "/model/")
	model, action, _ := strings.Cut(rest, "/")
	return model, action == "invoke-with-response-stream", ok && (action == "invoke" || action == "invoke-with-response-stream")
}

// signed reports what is wrong with the signature of a request, by AWS's Signature Version 4, which is computed here from
// its published steps.
func signed(r *http.Request, body []byte) error {
	scheme, fields, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if scheme != "AWS4-HMAC-SHA256" {
		return fmt.Errorf("the scheme is %q", scheme)
	}
	have := map[string]string{}
	for f := range strings.SplitSeq(fields, ",") {
		name, value, _ := strings.Cut(strings.TrimSpace(f), "=")
		have[name] = value
	}
	when := r.Header.Get("X-Amz-Date")
	if len(when) != len("20060102T150405Z") {
		return fmt.Errorf("the date is %q", when)
	}
	scope := when[:8] + "/" + AWSRegion + "/bedrock/aws4_request"
	if have["Credential"] != AWSAccessKey+"/"+scope {
		return fmt.Errorf("the credential is %q, not of %s", have["Credential"], scope)
	}
	names := strings.Split(have["SignedHeaders"], ";")
	for _, must := range []string{"host", "x-amz-date"} {
		if !slices.Contains(names, must) {
			return fmt.Errorf("%s is not signed", must)
		}
	}
	var headers strings.Builder
	for _, name := range names {
		value := strings.Join(r.Header.Values(name), ",")
		switch name {
		case "host":
			value = r.Host
		case "content-length":
			value = fmt.Sprint(r.ContentLength)
		}
		headers.WriteString(name + ":" + strings.Join(strings.Fields(value), " ") + "\n")
	}
	var path []string
	for segment := range strings.SplitSeq(r.URL.EscapedPath(), "/") { // each is encoded once more
		path = append(path, strings.ReplaceAll(url.QueryEscape(segment), "+", "%20"))
	}
	sum := sha256.Sum256(body)
	canonical := strings.Join([]string{r.Method, strings.Join(path, "/"), r.URL.Query().Encode(), headers.String(), have["SignedHeaders"], hex.EncodeToString(sum[:])}, "\n")
	sum = sha256.Sum256([]byte(canonical))
	key := []byte("AWS4" + AWSSecretKey)
	for _, part := range []string{when[:8], AWSRegion, "bedrock", "aws4_request", "AWS4-HMAC-SHA256\n" + when + "\n" + scope + "\n" + hex.EncodeToString(sum[:])} {
		mac := hmac.New(sha256.New, key)
		mac.Write([]byte(part))
		key = mac.Sum(nil)
	}
	if want := hex.EncodeToString(key); have["Signature"] != want {
		return fmt.Errorf("the signature is %s, not %s, of\n%s", have["Signature"], want, canonical)
	}
	return nil
}

// frame sends one frame of an event stream.
func (p *player) frame(headers map[string]string, payload []byte) bool {
	m := eventstream.Message{Payload: payload}
	for _, name := range []string{":message-type", ":event-type", ":exception-type", ":content-type"} {
		if v, ok := headers[name]; ok {
			m.Headers.Set(name, eventstream.StringValue(v))
		}
	}
	var b bytes.Buffer
	if err := eventstream.NewEncoder().Encode(&b, m); err != nil {
		panic("modelserver: " + err.Error())
	}
	return p.write(b.String())
}

// chunk64 sends an event of the Messages format in a frame, as Bedrock does.
func (p *player) chunk64(event []byte) bool {
	payload, err := json.Marshal(map[string]string{"bytes": base64.StdEncoding.EncodeToString(event), "p": "abc"})
	if err != nil {
		panic("modelserver: " + err.Error())
	}
	return p.frame(map[string]string{":message-type": "event", ":event-type": "chunk", ":content-type": "application/json"}, payload)
}

// exception ends a stream with an exception of AWS's.
func (p *player) exception(kind, message string) bool {
	payload, err := json.Marshal(map[string]string{"message": message})
	if err != nil {
		panic("modelserver: " + err.Error())
	}
	return p.frame(map[string]string{":message-type": "exception", ":exception-type": kind, ":content-type": "application/json"}, payload)
}
