package client

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"choir.dev/choiros/internal/datadir"
	"choir.dev/choiros/internal/defence"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/process"
)

// Runtime says where a running control plane is; DATA/runtime.json holds it,
// mode 0600, while it runs.
type Runtime struct {
	URL   string `json:"url"`
	Token string `json:"token"`
	PID   int    `json:"pid"`
	// Process identifies the process for good (see package process): its number may be used
	// by another user's process by now, and so may its port.
	Process string `json:"process"`
}

const runtimeFile = "runtime.json"

// WriteRuntime tells other programs of this user where the control plane is.
func WriteRuntime(data string, r Runtime) error {
	b, err := json.Marshal(r)
	if err != nil {
		return fault.Wrap("client.WriteRuntime", err)
	}
	return datadir.WritePassing(filepath.Join(data, runtimeFile), append(b, '\n'), 0o600)
}

// RemoveRuntime removes what WriteRuntime wrote.
func RemoveRuntime(data string) error {
	err := os.Remove(filepath.Join(data, runtimeFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return fault.Wrap("client.RemoveRuntime", err)
}

// ReadRuntime reads it; fault.Unreachable when no control plane runs there.
func ReadRuntime(data string) (Runtime, error) {
	const op = "client.ReadRuntime"
	down := func(err error) (Runtime, error) {
		return Runtime{}, fault.New(op, fault.Unreachable, "Start it with choir up, or set CHOIR_URL and CHOIR_TOKEN.", err)
	}
	file := filepath.Join(data, runtimeFile)
	b, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return down(fmt.Errorf("no control plane runs on %s", data))
	}
	if errors.Is(err, fs.ErrPermission) {
		return Runtime{}, fault.New(op, fault.Denied, "Run this as the user who started choir up.", err)
	}
	if err != nil {
		return Runtime{}, fault.Wrap(op, err)
	}
	var r Runtime
	if err := json.Unmarshal(b, &r); err != nil || r.URL == "" {
		return down(fmt.Errorf("%s is damaged", file))
	}
	// The file was left behind by a process that was killed.
	if process.Living(r.Process) != r.PID && !defence.Off(defence.RuntimeProcess) || r.PID <= 0 || errors.Is(unix.Kill(r.PID, 0), unix.ESRCH) {
		return down(fmt.Errorf("the control plane of %s has ended", data))
	}
	return r, nil
}

// SamePlace reports whether an address, as a person wrote it, is that of a control plane on this machine: it has the
// same port, and its host is the same or a name of this machine.
func SamePlace(address, here string) bool {
	a, err := url.Parse(address)
	if err != nil {
		return false
	}
	b, err := url.Parse(here)
	if err != nil || a.Port() != b.Port() {
		return false
	}
	host := strings.ToLower(strings.TrimSuffix(a.Hostname(), "."))
	ip := net.ParseIP(host)
	return host == b.Hostname() || host == "localhost" || strings.HasSuffix(host, ".localhost") || ip != nil && ip.IsLoopback()
}

// Discover makes a client for CHOIR_URL and CHOIR_TOKEN, as getenv returns
// them, else for the instance that runs on the data directory.
func Discover(getenv func(string) string, data, computer string) (*Client, error) {
	base, token := getenv("CHOIR_URL"), getenv("CHOIR_TOKEN")
	if base != "" && token != "" {
		return New(base, token, computer)
	}
	r, err := ReadRuntime(data)
	switch {
	case err != nil && base != "":
		// CHOIR_URL without a token: the answer will say that one is needed.
		return New(base, token, computer)
	case err != nil:
		return nil, err
	}
	if token == "" && (base == "" || base == r.URL) {
		token = r.Token // never sent to another address than its own
	}
	if base == "" {
		base = r.URL
	}
	return New(base, token, computer)
}
