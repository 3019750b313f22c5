// Package procfs reads what the kernel tells of processes.
package procfs

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// Field returns the value in a line "name : value".
func Field(path, name string) string {
	f, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		if key, value, ok := strings.Cut(lines.Text(), ":"); ok && strings.TrimSpace(key) == name {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// Resident is a process' resident set in bytes.
func Resident(pid int) (int64, error) {
	value := Field(fmt.Sprintf("/proc/%d/status", pid), "VmRSS")
	kb, err := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(value, "kB")), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("memory of process %d: %w", pid, err)
	}
	return kb << 10, nil
}

// Proportional is a process' memory in bytes, of which it has its part where others share it.
func Proportional(pid int) (int64, error) {
	value := Field(fmt.Sprintf("/proc/%d/smaps_rollup", pid), "Pss")
	kb, err := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(value, "kB")), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("memory of process %d: %w", pid, err)
	}
	return kb << 10, nil
}

// Family sums the memory of a process' descendants.
func Family(pid int, of func(pid int) (int64, error)) (bytes int64, count int, err error) {
	tasks, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	if err != nil {
		return 0, 0, err
	}
	for _, t := range tasks {
		b, err := os.ReadFile(t)
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ESRCH) {
			continue
		} else if err != nil {
			return 0, 0, err
		}
		for _, f := range strings.Fields(string(b)) {
			child, err := strconv.Atoi(f)
			if err != nil {
				return 0, 0, err
			}
			own, err := of(child)
			if err != nil {
				continue // it has ended
			}
			more, n, err := Family(child, of)
			if err != nil {
				return 0, 0, err
			}
			bytes, count = bytes+own+more, count+1+n
		}
	}
	return bytes, count, nil
}
