package trace

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
)

// Names of attributes: those of OpenTelemetry's semantic conventions 1.41, and one of our own.
const (
	operation    = "gen_ai.operation.name"
	providerName = "gen_ai.provider.name"
	requestModel = "gen_ai.request.model"
	inputTokens  = "gen_ai.usage.input_tokens"
	outputTokens = "gen_ai.usage.output_tokens"
	verification = "choir.verification.status"
)

// maxLabel bounds the text of an attribute.
const maxLabel = 100

// other stands for a text that is not a label.
const other = "_OTHER"

// label is a short name as it is, and other in the place of anything else: whatever becomes of the
// events, nothing that was written to be read goes out as a name.
func label(s string) string {
	if s == "" || len(s) > maxLabel {
		return other
	}
	for i := range len(s) {
		if c := s[i]; (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && !strings.ContainsRune("._:/@+-", rune(c)) {
			return other
		}
	}
	return s
}

// provider is the conventions' name of a provider, or our own where they have none.
func provider(name string) string {
	if name == "bedrock" {
		return "aws.bedrock"
	}
	return label(name)
}

// derive makes an id of a number of bytes, in hexadecimal digits.
func (r *Tree) derive(what, key string, bytes int) string {
	sum := sha256.Sum256([]byte("choir\x00" + what + "\x00" + string(r.cid) + "\x00" + r.run + "\x00" + key))
	return hex.EncodeToString(sum[:bytes])
}

// Traceparent returns a traceparent of the W3C's Trace Context as it is, and "" for anything else, which
// is to be ignored.
func Traceparent(s string) string {
	if _, _, ok := parent(s); !ok || len(s) > maxLabel {
		return ""
	}
	return s
}

// parent reads a traceparent of the W3C's Trace Context; ok is whether it is one.
func parent(s string) (trace, span string, ok bool) {
	part := strings.Split(s, "-")
	if len(part) < 4 || part[0] == "00" && len(part) != 4 || part[0] == "ff" {
		return "", "", false
	}
	for i, n := range []int{2, 32, 16, 2} {
		if len(part[i]) != n || strings.Trim(part[i], "0123456789abcdef") != "" {
			return "", "", false
		}
	}
	if strings.Trim(part[1], "0") == "" || strings.Trim(part[2], "0") == "" {
		return "", "", false
	}
	return part[1], part[2], true
}
