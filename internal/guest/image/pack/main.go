// Command pack compresses the guest binary for image to embed:
//
//	pack GUEST PAYLOAD
package main

import (
	"fmt"
	"os"

	"choir.dev/choiros/internal/guest/image"
)

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: pack GUEST PAYLOAD")
		os.Exit(2)
	}
	raw, err := os.ReadFile(os.Args[1])
	if err == nil {
		var packed []byte
		if packed, err = image.Pack(raw); err == nil {
			err = os.WriteFile(os.Args[2], packed, 0o644)
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "pack:", err)
		os.Exit(1)
	}
}
