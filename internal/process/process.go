// Package process names processes unambiguously: by their number and their start time,
// because the kernel reuses numbers.
package process

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
)

// ID names a process as "number start". It is "" when there is no such process, or when it
// has ended and is a zombie.
func ID(pid int) string {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return ""
	}
	// The command's name is in parentheses and may hold anything.
	_, rest, ok := strings.Cut(string(stat[strings.LastIndexByte(string(stat), ')')+1:]), " ")
	fields := strings.Fields(rest)
	const state, started = 0, 19 // indexes of the fields after the name
	if !ok || len(fields) <= started || fields[state] == "Z" || fields[state] == "X" {
		return ""
	}
	return strconv.Itoa(pid) + " " + fields[started]
}

// Self is this process's ID.
var Self = sync.OnceValue(func() string { return ID(os.Getpid()) })

// Living returns the number of the process with an ID, or 0 if it has ended.
func Living(id string) int {
	pid, _, _ := strings.Cut(id, " ")
	n, err := strconv.Atoi(pid)
	if err != nil || n < 1 || ID(n) != id {
		return 0
	}
	return n
}
