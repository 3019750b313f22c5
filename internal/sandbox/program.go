package sandbox

import (
	"fmt"
	"os"
	"path/filepath"

	"choir.dev/choiros/internal/fault"
)

// Program returns fault.Missing with the hint if boxes don't have a program: they see the
// host's /usr.
func Program(name, hint string) error {
	for _, dir := range []string{"/usr/local/bin", "/usr/bin", "/bin"} {
		if st, err := os.Stat(filepath.Join(dir, name)); err == nil && st.Mode().IsRegular() && st.Mode()&0o111 != 0 {
			return nil
		}
	}
	return fault.New("", fault.Missing, hint, fmt.Errorf("%s is not installed", name))
}

// Certificates is the path at which boxes see the machine's trusted certificates.
const Certificates = "/etc/ssl/certs/ca-certificates.crt"
