package main

import (
	"choir.dev/choiros/internal/guest"
	"choir.dev/choiros/internal/guest/kinds"
)

// services are what guests of each kind offer the host beyond commands, terminals and
// files.
func services() guest.Services { return kinds.Services() }
