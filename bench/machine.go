package bench

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Machine is what the numbers were measured on.
type Machine struct {
	CPUs       int    `json:"cpus"`
	CPU        string `json:"cpu"`
	MemoryMB   int64  `json:"memory_mb"`
	Kernel     string `json:"kernel"`
	FileSystem string `json:"file_system"`
	Go         string `json:"go"`
	Git        string `json:"git"`
	LoadBefore string `json:"load_before"` // 1, 5 and 15 minutes
	LoadAfter  string `json:"load_after"`
}

// busy reports whether more was to be done than there are processors, in the
// five minutes before the run: a run itself is not that much work. The minutes
// before its end are told only.
func (m Machine) busy() bool {
	f := strings.Fields(m.LoadBefore)
	if len(f) < 2 {
		return false
	}
	load, err := strconv.ParseFloat(f[1], 64)
	return err == nil && load > float64(m.CPUs)
}

// lookAt describes the machine and the file system of dir. What can't be found
// out stays empty.
func lookAt(ctx context.Context, dir string) Machine {
	m := Machine{CPUs: runtime.NumCPU(), Go: runtime.Version(), CPU: field("/proc/cpuinfo", "model name"), LoadBefore: load(), FileSystem: fileSystem(dir)}
	var info unix.Sysinfo_t
	if unix.Sysinfo(&info) == nil {
		m.MemoryMB = int64(info.Totalram) * int64(info.Unit) >> 20
	}
	var name unix.Utsname
	if unix.Uname(&name) == nil {
		m.Kernel = unix.ByteSliceToString(name.Sysname[:]) + " " + unix.ByteSliceToString(name.Release[:]) + " " + unix.ByteSliceToString(name.Machine[:])
	}
	if out, err := exec.CommandContext(ctx, "git", "version").Output(); err == nil {
		m.Git = strings.TrimSpace(strings.TrimPrefix(string(out), "git version "))
	}
	return m
}

// field returns a "name : value" line's value.
func field(path, name string) string {
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

func load() string {
	b, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return ""
	}
	f := strings.Fields(string(b))
	return strings.Join(f[:min(3, len(f))], " ")
}

func fileSystem(dir string) string {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return ""
	}
	switch int64(st.Type) {
	case unix.EXT4_SUPER_MAGIC:
		return "ext4"
	case unix.XFS_SUPER_MAGIC:
		return "xfs"
	case unix.BTRFS_SUPER_MAGIC:
		return "btrfs"
	case unix.TMPFS_MAGIC:
		return "tmpfs (in memory: syncing costs nothing here)"
	case unix.OVERLAYFS_SUPER_MAGIC:
		return "overlayfs"
	}
	return fmt.Sprintf("type 0x%x", st.Type)
}
