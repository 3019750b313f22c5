package httpio

import (
	"crypto/rand"
	"encoding/base64"
)

// NonceChars is the length of a nonce.
const NonceChars = 24

// NewNonce draws a random nonce for a page.
func NewNonce() string {
	var b [18]byte
	_, _ = rand.Read(b[:]) // never fails since Go 1.24
	return base64.RawURLEncoding.EncodeToString(b[:])
}

// Permissions is the Permissions-Policy of our pages. It lists the browser features that
// none of them may use.
const Permissions = "accelerometer=(), autoplay=(), browsing-topics=(), camera=(), display-capture=(), encrypted-media=(), geolocation=(), gyroscope=(), " +
	"hid=(), identity-credentials-get=(), idle-detection=(), local-fonts=(), magnetometer=(), microphone=(), midi=(), otp-credentials=(), payment=(), " +
	"publickey-credentials-create=(), publickey-credentials-get=(), screen-wake-lock=(), serial=(), storage-access=(), usb=(), window-management=(), xr-spatial-tracking=()"

// NoncePlaceholder is the text in a page that is replaced by the nonce of its scripts and
// styles.
const NoncePlaceholder = "CHOIR_NONCE"
