package contract

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"unicode"
)

// ApprovalKind says what kind of act an approval is about.
type ApprovalKind string

// The kinds of act that need a person.
const (
	// ApprovalEgress lets one run's tasks out to one host and port.
	ApprovalEgress ApprovalKind = "egress"
	// ApprovalFetch has one page read for a run's tasks, in a box that has nothing of the computer's.
	ApprovalFetch ApprovalKind = "fetch"
	// ApprovalRequest has one request that changes something outside sent, one time.
	ApprovalRequest ApprovalKind = "request"
)

// ApprovalAnswer is what a person decided; the system itself only denies.
type ApprovalAnswer string

// The answers to an approval.
const (
	ApprovalOnce ApprovalAnswer = "once" // to the attempts that wait for it; a request is sent one time
	ApprovalRun  ApprovalAnswer = "run"  // to every task of the run; of a request it is no answer
	ApprovalDeny ApprovalAnswer = "deny" // a person's denial holds for the whole run
)

// RequestMethods are the methods of a request that changes something.
var RequestMethods = []string{"POST", "PUT", "PATCH", "DELETE"}

// MaxClaim bounds what an agent may say in an approval, in characters.
const MaxClaim = 200

type (
	// Act is exactly what an approval allows, made of what the host knows.
	Act struct {
		Kind ApprovalKind `json:"kind" v:"required"`
		Run  string       `json:"run" v:"required,id"`
		Host string       `json:"host" v:"required,line,max=300"`
		Port int          `json:"port" v:"min=1,max=65535"`
		URL  string       `json:"url,omitempty" v:"line,max=2048"` // of a fetch and a request: the whole address
		// Of a request: its method, all of it as it leaves, and the effect that it makes once more.
		Method string  `json:"method,omitempty" v:"line,max=16"`
		Sends  BlobRef `json:"sends,omitempty"`
		Again  string  `json:"again,omitempty" v:"id"`
	}
	// RequestShown is what a person is shown of a request that waits for them, besides its method and address. Sends of the
	// act has all of it.
	RequestShown struct {
		Headers []string `json:"headers,omitempty" v:"items=24;line,max=1200"`
		Body    string   `json:"body,omitempty" v:"max=4096"` // its beginning; what can't be seen is spelled out
		Size    int      `json:"size" v:"min=0,max=65536"`    // bytes of the whole body
		Cut     bool     `json:"cut,omitempty"`               // there is more than Body shows
		SHA256  string   `json:"sha256,omitempty" v:"max=64"` // of the whole body, in hex
		// Before is what is known of the effect that it makes once more.
		Before EffectOutcome `json:"before,omitempty"`
	}
	// ApprovalRequested asks a person for something that a computer was not
	// granted. Everything but Claim is the host's own knowledge; Claim is what
	// the agent says about it, as plain text.
	ApprovalRequested struct {
		Approval string `json:"approval" v:"required,id"`
		Act      Act    `json:"act"`
		Digest   string `json:"digest" v:"required,max=64"` // of Act; an answer names it
		Attempt  int    `json:"attempt" v:"min=1,max=1000"`
		Claim    string `json:"claim,omitempty" v:"line,max=800"`
		Deadline string `json:"deadline" v:"required,time"` // then it is denied
		// Request shows a request.
		Request *RequestShown `json:"request,omitempty"`
	}
	// ApprovalAnswered is the one answer to an approval. Reason says why the
	// system denied it; a person gives none.
	ApprovalAnswered struct {
		Approval string         `json:"approval" v:"required,id"`
		Digest   string         `json:"digest" v:"required,max=64"`
		Answer   ApprovalAnswer `json:"answer" v:"required"`
		Reason   string         `json:"reason,omitempty" v:"max=512"`
	}
	// EgressMetered is what has passed a tunnel so far, in bytes as its box sees it. The
	// event is appended when the tunnel ends and, if it is open for long, in between as
	// well; the newest one counts.
	EgressMetered struct {
		Tunnel   string  `json:"tunnel" v:"required,id"`
		Box      string  `json:"box" v:"required,max=128"`
		Kind     BoxKind `json:"kind" v:"required"`
		Host     string  `json:"host" v:"required,max=1024"`
		Port     int     `json:"port" v:"min=1,max=65535"`
		Sent     int64   `json:"sent" v:"min=0"`
		Received int64   `json:"received" v:"min=0"`
		WallMS   int64   `json:"wall_ms" v:"min=0"`
		Ended    bool    `json:"ended"`
	}
)

// Digest is the SHA-256 of the act's canonical JSON: its fields in the order of
// their names, without space.
func (a Act) Digest() (string, error) {
	fields := map[string]any{"kind": a.Kind, "run": a.Run, "host": a.Host, "port": a.Port}
	for name, v := range map[string]string{"url": a.URL, "method": a.Method, "sends": string(a.Sends), "again": a.Again} {
		if v != "" {
			fields[name] = v
		}
	}
	b, err := json.Marshal(fields)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:]), nil
}

// Target is what the act reaches as a person writes it: an address, or host and port; of a request with its method.
func (a Act) Target() string {
	if a.Method != "" {
		return a.Method + " " + a.URL
	}
	if a.URL != "" {
		return a.URL
	}
	host := a.Host
	if strings.Contains(host, ":") {
		host = "[" + host + "]"
	}
	return host + ":" + strconv.Itoa(a.Port)
}

// Claim makes one line of plain text of what an agent says: without control or formatting
// characters that could reorder or hide the text around it, and of at most MaxClaim
// characters.
func Claim(s string) string {
	var b strings.Builder
	n, space := 0, false
	for _, r := range strings.ToValidUTF8(s, "\uFFFD") {
		if unicode.IsSpace(r) {
			space = n > 0
			continue
		}
		if !unicode.IsPrint(r) {
			continue
		}
		if space && n < MaxClaim-1 {
			b.WriteByte(' ')
			n++
		}
		space = false
		if n >= MaxClaim-1 {
			b.WriteRune('…')
			break
		}
		b.WriteRune(r)
		n++
	}
	return b.String()
}

// Validate implements Payload.
func (a Act) Validate() error { return check(a) }

// Validate implements Payload.
func (p ApprovalRequested) Validate() error { return check(p) }

// Validate implements Payload.
func (p ApprovalAnswered) Validate() error { return check(p) }

// Validate implements Payload.
func (p EgressMetered) Validate() error { return check(p) }

func (a Act) crossCheck() error {
	sent := a.Kind == ApprovalRequest
	switch {
	case (sent || a.Kind == ApprovalFetch) != (a.URL != ""):
		return fieldErr("url", "is required for a fetch and a request, and only for them")
	case sent != slices.Contains(RequestMethods, a.Method) || !sent && a.Method != "":
		return fieldErr("method", "is required for a request, and only for one: %s", strings.Join(RequestMethods, ", "))
	case sent != (a.Sends != ""):
		return fieldErr("sends", "is required for a request, and only for one")
	case !sent && a.Again != "":
		return fieldErr("again", "is for a request")
	}
	return nil
}

func (p ApprovalRequested) crossCheck() error {
	d, err := p.Act.Digest()
	if err != nil || d != p.Digest {
		return fieldErr("digest", "is not that of the act")
	}
	if p.Claim != Claim(p.Claim) {
		return fieldErr("claim", "is not plain text of at most %d characters", MaxClaim)
	}
	if (p.Act.Kind == ApprovalRequest) != (p.Request != nil) {
		return fieldErr("request", "is required for a request, and only for one")
	}
	return nil
}

func (p ApprovalAnswered) crossCheck() error {
	if p.Reason != "" && p.Answer != ApprovalDeny {
		return fieldErr("reason", "is only for a denial by the system")
	}
	return nil
}

func init() {
	register[ApprovalRequested](TypeInfo{Type: "approval.requested", Doc: "Something beyond what the computer was granted waits for a person.", By: []ActorKind{KindAssociate}, Needs: CanNetwork, Projected: true})
	register[EgressMetered](TypeInfo{Type: "egress.metered", Doc: "What has passed a tunnel so far.", By: host, Needs: CanRecord, Projected: true})
	register[ApprovalAnswered](TypeInfo{Type: "approval.answered", Doc: "A person allowed or denied it on the console, or the system denied it.", By: []ActorKind{KindPerson, KindSystem}, Needs: CanApprove, Projected: true})
}
