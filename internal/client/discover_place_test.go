package client_test

import (
	"testing"

	"choir.dev/choiros/internal/client"
)

// TestSamePlace shows which addresses are those of a control plane on this machine.
func TestSamePlace(t *testing.T) {
	const here = "http://console.choir.localhost:7700"
	for address, want := range map[string]bool{
		here: true, here + "/": true, "http://127.0.0.1:7700": true, "http://localhost:7700": true, "http://[::1]:7700": true,
		"http://127.0.0.1:9": false, "http://choir.example:7700": false, "http://console.choir.localhost": false, "://": false, "": false,
	} {
		if got := client.SamePlace(address, here); got != want {
			t.Errorf("%q: %v", address, got)
		}
	}
}
