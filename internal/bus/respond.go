package bus

import (
	"fmt"
	"strings"

	"github.com/nats-io/nats.go"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/fault"
)

// Caller returns the computer and principal behind a request on user.{cid}.action or
// svc.{cid}.…, or fault.Denied.
//
// The computer is the subject's second token, which the server checked against the client's
// publish permissions. The principal is part of the inbox in which the request wants its
// answer, and is accepted only if it has valid credentials for that computer. The bridge
// has refused reply subjects outside the inbox of the connection's own credentials, so a
// client can name neither another session nor a subject of the log.
func (b *Bus) Caller(msg *nats.Msg) (contract.CID, string, error) {
	const op = "bus.Caller"
	deny := func(format string, args ...any) (contract.CID, string, error) {
		return "", "", fault.New(op, fault.Denied, "", fmt.Errorf(format, args...))
	}
	tokens := strings.SplitN(msg.Subject, ".", 3)
	if len(tokens) < 3 || (tokens[0] != "user" && tokens[0] != "svc") || contract.CID(tokens[1]).Validate() != nil {
		return deny("%.100q is not a subject that clients ask on", msg.Subject)
	}
	cid := contract.CID(tokens[1])
	rest, ok := strings.CutPrefix(msg.Reply, "_INBOX.")
	principal, tail, found := strings.Cut(rest, ".")
	if !ok || !found || tail == "" || !principalPattern().MatchString(principal) || strings.ContainsAny(tail, "*> \t\r\n") {
		return deny("%.100q is not a reply subject under the caller's inbox", msg.Reply)
	}
	owner, ok := b.owner(principal)
	if !ok {
		return deny("%s holds no credentials", principal)
	}
	if owner != cid {
		return deny("%s belongs to another computer than %s", principal, cid)
	}
	return cid, principal, nil
}

// Respond answers a client's request, but only to the caller's own inbox (see Caller).
// Every service that answers clients must use it: NATS does not check reply subjects
// against publish permissions, so with msg.Respond a client could make the control plane
// publish to a subject of the client's choice.
func (b *Bus) Respond(msg *nats.Msg, payload []byte) error {
	if _, _, err := b.Caller(msg); err != nil {
		return fault.Wrap("bus.Respond", err)
	}
	if err := b.conn.Publish(msg.Reply, payload); err != nil {
		return fault.Wrap("bus.Respond", err)
	}
	return nil
}
