// Package service answers the desktop's requests on NATS: user.{cid}.action and
// svc.{cid}.{service}.{method}. Every field of a request is checked before it is answered.
// An answer goes only to the caller's own inbox and stays below the payload limit.
// docs/desktop.md describes the protocol.
package service
