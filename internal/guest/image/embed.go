//go:build embedguest

package image

import _ "embed"

//go:embed payload/choir-guest.zst
var payload string
