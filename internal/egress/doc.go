// Package egress is the only way out of a box: a CONNECT proxy on the host with an allowlist for
// each box. A name is matched before it is resolved, the resolved address is checked, that same
// address is dialled, and the TLS server name must be the name that was allowed. A request in a
// form that the proxy does not know is refused.
package egress
