package contract

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
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
)

// ApprovalAnswer is what a person decided; the system itself only denies.
type ApprovalAnswer string

// The answers to an approval.
const (
	ApprovalOnce ApprovalAnswer = "once" // to the attempts that wait for it
	ApprovalRun  ApprovalAnswer = "run"  // to every task of the run
	ApprovalDeny ApprovalAnswer = "deny" // a person's denial holds for the whole run
)

// MaxClaim bounds what an agent may say in an approval, in characters.
const MaxClaim = 200

type (
	// Act is exactly what an approval allows, made of what the host knows.
	Act struct {
		Kind ApprovalKind `json:"kind" v:"required"`
		Run  string       `json:"run" v:"required,id"`
		Host string       `json:"host" v:"required,line,max=300"`
		Port int          `json:"port" v:"min=1,max=65535"`
		URL  string       `json:"url,omitempty" v:"line,max=2048"` // of a fetch: the whole address
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
	if a.URL != "" {
		fields["url"] = a.URL
	}
	b, err := json.Marshal(fields)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:]), nil
}

// Target is what the act reaches as a person writes it: an address, or host and port.
func (a Act) Target() string {
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
	if (a.Kind == ApprovalFetch) != (a.URL != "") {
		return fieldErr("url", "is required for a fetch, and only for one")
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
