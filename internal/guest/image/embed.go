//go:build embedguest

package image

import _ "embed"

//go:embed payload/choir-guest.zst
var payload string

//go:embed payload/choir-reader.zst
var reader string
