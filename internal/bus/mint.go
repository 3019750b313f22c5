package bus

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nkeys"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/defence"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/lazy"
)

// These bound what one client may use.
const (
	MaxTTL         = 12 * time.Hour
	clientPayload  = 256 << 10
	clientSubs     = 64
	maxGrants      = 100_000
	grantsPerOwner = 256
)

// Credentials let one session at one computer use NATS through Serve.
type Credentials struct {
	JWT     string    // user JWT
	Seed    string    // the nkey seed that signs the server's nonce
	Streams string    // the subjects that only this session may subscribe to
	Inbox   string    // inbox prefix; the client must use it for its requests
	Expires time.Time // the server ends the connection then
}

type grant struct {
	cid     contract.CID
	user    string // public nkey
	expires time.Time
}

var principalPattern = lazy.Regexp(`^[A-Za-z0-9_-]{1,64}$`)

// Mint makes credentials for principal, which is the control plane's name for a session:
// one token of A-Z a-z 0-9 _ -. They allow exactly:
//
//	publish    user.{cid}.action, svc.{cid}.>
//	subscribe  live.{cid}.>, agent.{cid}.*.result, stream.{cid}.{principal}.>, _INBOX.{principal}.>
//
// One principal belongs to one computer; asking for another computer is fault.Denied.
// Credentials expire after ttl, and end with Revoke and with the process.
func (b *Bus) Mint(cid contract.CID, principal string, ttl time.Duration) (Credentials, error) {
	const op = "bus.Mint"
	if err := cid.Validate(); err != nil {
		return Credentials{}, fault.New(op, fault.Invalid, "", err)
	}
	if !principalPattern().MatchString(principal) {
		return Credentials{}, fault.New(op, fault.Invalid, "", errors.New("principal: must be 1 to 64 of A-Z a-z 0-9 _ -"))
	}
	if ttl < time.Second || ttl > MaxTTL {
		return Credentials{}, fault.New(op, fault.Invalid, "", fmt.Errorf("ttl: is %s; it must be from 1s to %s", ttl, MaxTTL))
	}
	user, err := nkeys.CreateUser()
	if err != nil {
		return Credentials{}, fault.Wrap(op, err)
	}
	public, err := user.PublicKey()
	if err != nil {
		return Credentials{}, fault.Wrap(op, err)
	}
	seed, err := user.Seed()
	if err != nil {
		return Credentials{}, fault.Wrap(op, err)
	}
	expires := b.now().Add(ttl).Truncate(time.Second)
	inbox := contract.InboxPrefix(principal)
	uc := jwt.NewUserClaims(public)
	uc.Name = principal
	uc.Expires = expires.Unix()
	if !defence.Off(defence.BusPayload) {
		uc.Limits.Payload = clientPayload
	}
	uc.Limits.Subs = clientSubs
	if !defence.Off(defence.BusPermissions) {
		uc.Permissions.Pub.Allow.Add(contract.SubjectAction(cid), contract.SubjectServiceAll(cid))
		uc.Permissions.Sub.Allow.Add(contract.SubjectLive(cid), contract.SubjectResult(cid, "*"), inbox+".>")
		streams := principal
		if defence.Off(defence.BusStreams) {
			streams = "*"
		}
		uc.Permissions.Sub.Allow.Add(contract.SubjectStreams(cid, streams))
	}
	token, err := b.backend.Sign(uc)
	if err != nil {
		return Credentials{}, fault.Wrap(op, err)
	}
	if err := b.record(principal, grant{cid: cid, user: public, expires: expires}); err != nil {
		return Credentials{}, fault.Wrap(op, err)
	}
	return Credentials{JWT: token, Seed: string(seed), Streams: contract.SubjectStreams(cid, principal), Inbox: inbox, Expires: expires}, nil
}

func (b *Bus) record(principal string, g grant) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := b.now()
	live := slices.DeleteFunc(b.grants[principal], func(o grant) bool { return !o.expires.After(now) })
	if len(live) > 0 && live[0].cid != g.cid {
		return fault.New("", fault.Denied, "", fmt.Errorf("principal %s belongs to another computer", principal))
	}
	if len(live) >= grantsPerOwner {
		return fault.New("", fault.Exhausted, "Wait until some of this session's credentials have expired.", fmt.Errorf("%d credentials are live for %s", len(live), principal))
	}
	if len(live) == 0 && len(b.grants) >= maxGrants {
		b.sweep(now)
		if len(b.grants) >= maxGrants {
			return fault.New("", fault.Exhausted, "Wait until some sessions have ended.", fmt.Errorf("%d sessions hold credentials", len(b.grants)))
		}
	}
	b.grants[principal] = append(live, g)
	return nil
}

// sweep forgets the grants that have expired.
func (b *Bus) sweep(now time.Time) {
	for p, list := range b.grants {
		list = slices.DeleteFunc(list, func(g grant) bool { return !g.expires.After(now) })
		if len(list) == 0 {
			delete(b.grants, p)
		} else {
			b.grants[p] = list
		}
	}
}

// Revoke invalidates all credentials of principal at once and ends the connections that use
// them. A principal without credentials is no error.
func (b *Bus) Revoke(principal string) error {
	const op = "bus.Revoke"
	b.mu.Lock()
	defer b.mu.Unlock()
	list := b.grants[principal]
	if len(list) == 0 {
		return nil
	}
	delete(b.grants, principal)
	now := b.now()
	b.sweep(now)
	var users []string
	for _, g := range list {
		users = append(users, g.user)
	}
	return fault.Wrap(op, b.backend.Revoke(now, users))
}

// owner returns the computer for which principal has valid credentials.
func (b *Bus) owner(principal string) (contract.CID, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := b.now()
	for _, g := range b.grants[principal] {
		if g.expires.After(now) {
			return g.cid, true
		}
	}
	return "", false
}
