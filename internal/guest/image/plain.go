//go:build !embedguest

package image

var payload []byte
