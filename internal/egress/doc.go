// Package egress is the only way out of a box: a CONNECT proxy on the host with
// an allowlist per box. A name is matched before it is resolved, the resolved
// address is checked and dialled as checked, and the TLS server name must be
// the name that was allowed. Whatever is not understood is refused.
package egress
