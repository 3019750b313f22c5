// Package service answers the desktop's requests on NATS: user.{cid}.action
// and svc.{cid}.{service}.{method}. Every answer goes to the caller's own inbox
// and nowhere else, stays below the payload limit, and is to a request whose
// every field was checked. docs/desktop.md has the protocol.
package service
