// Package websearch asks the search service that the owner configured. It runs on the host, which alone knows
// the key; what a service answers is bounded and made plain, and trusted no further.
package websearch
