//go:build !embedguest

package image

var payload string
