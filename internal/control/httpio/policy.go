package httpio

import (
	"crypto/rand"
	"encoding/base64"
)

// NonceChars is how long a nonce is.
const NonceChars = 24

// NewNonce draws a page's nonce.
func NewNonce() string {
	var b [18]byte
	_, _ = rand.Read(b[:]) // never fails since Go 1.24
	return base64.RawURLEncoding.EncodeToString(b[:])
}

// Permissions is what no page of ours may ask a browser for.
const Permissions = "accelerometer=(), autoplay=(), browsing-topics=(), camera=(), display-capture=(), encrypted-media=(), geolocation=(), gyroscope=(), " +
	"hid=(), identity-credentials-get=(), idle-detection=(), local-fonts=(), magnetometer=(), microphone=(), midi=(), otp-credentials=(), payment=(), " +
	"publickey-credentials-create=(), publickey-credentials-get=(), screen-wake-lock=(), serial=(), storage-access=(), usb=(), window-management=(), xr-spatial-tracking=()"

// NoncePlaceholder stands in a page where the nonce of its scripts and styles goes.
const NoncePlaceholder = "CHOIR_NONCE"
