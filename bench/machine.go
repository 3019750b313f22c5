package bench

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"

	"choir.dev/choiros/bench/procfs"
	"choir.dev/choiros/bench/report"
)

// lookAt describes the machine and the file system of dir. What can't be determined stays empty.
func lookAt(ctx context.Context, dir string) report.Machine {
	m := report.Machine{CPUs: runtime.NumCPU(), Go: runtime.Version(), CPU: procfs.Field("/proc/cpuinfo", "model name"), LoadBefore: load(), FileSystem: fileSystem(dir)}
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
