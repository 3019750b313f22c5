package sandboxtest

import (
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
)

// ordinary is a user id that owns nothing.
const ordinary = 61234

const asUser = "CHOIR_TEST_AS_USER"

// AsUser runs test as whoever runs the tests and, when that is root, once more
// as an ordinary user, in a process of its own: root may do much that hides a
// mistake. The binaries are made before, since that user can't build any.
func AsUser(t *testing.T, test func(t *testing.T), env ...string) {
	t.Helper()
	if os.Getenv(asUser) != "" {
		test(t)
		return
	}
	t.Run("same-user", test)
	if os.Geteuid() != 0 {
		return
	}
	t.Run("ordinary-user", func(t *testing.T) {
		dir, err := os.MkdirTemp("", "choir-user-")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := os.RemoveAll(dir); err != nil {
				t.Error(err)
			}
		})
		// The test binary lies where only its owner may look.
		self, home := filepath.Join(dir, "test"), filepath.Join(dir, "home")
		if err := copyProgram(os.Args[0], self); err != nil {
			t.Fatal(err)
		}
		if err := os.Mkdir(home, 0o755); err != nil {
			t.Fatal(err)
		}
		for _, err := range []error{os.Chmod(dir, 0o755), os.Chown(home, ordinary, ordinary)} {
			if err != nil {
				t.Fatal(err)
			}
		}
		name := "^" + filepath.Dir(t.Name()) + "$"
		cmd := exec.Command(self, "-test.run="+name, "-test.v", "-test.timeout=5m")
		cmd.Dir = home
		cmd.Env = append(os.Environ(), asUser+"=1", "TMPDIR="+home, "HOME="+home,
			"CHOIR_TEST_BIN="+filepath.Dir(Probe(t)))
		cmd.Env = append(cmd.Env, env...)
		BareGuest(t)
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: ordinary, Gid: ordinary}, Pdeathsig: syscall.SIGKILL}
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Errorf("as an ordinary user: %v\n%s", err, out)
		}
	})
}

func copyProgram(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o755)
	if err != nil {
		return err
	}
	if _, err := io.Copy(out, in); err != nil {
		_ = out.Close()
		return err
	}
	return out.Close()
}
