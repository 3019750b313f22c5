package e2e_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"net/http"
	"net/http/cgi"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/view"
	"choir.dev/choiros/test/choirtest"
)

// gitServer serves the repositories below a folder over TLS with a certificate of its own, which it
// returns as PEM.
func gitServer(t *testing.T, root string) (srv *httptest.Server, certificate []byte) {
	t.Helper()
	path, err := exec.Command("git", "--exec-path").Output()
	if err != nil {
		t.Fatal(err)
	}
	// Programs never use a proxy for 127.0.0.1, so this is another loopback address.
	return tlsServer(t, "127.0.0.2", &cgi.Handler{
		Path: filepath.Join(strings.TrimSpace(string(path)), "git-http-backend"),
		Env: []string{"GIT_PROJECT_ROOT=" + root, "GIT_HTTP_EXPORT_ALL=1", "GIT_CONFIG_COUNT=1",
			"GIT_CONFIG_KEY_0=safe.directory", "GIT_CONFIG_VALUE_0=*"},
	})
}

// tlsServer serves on a loopback address with a certificate of its own, for that address and for
// 0.0.0.0, which it returns as PEM.
func tlsServer(t *testing.T, address string, h http.Handler) (srv *httptest.Server, certificate []byte) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: "Test"}, IPAddresses: []net.IP{net.ParseIP(address), net.IPv4zero}, DNSNames: []string{"localhost"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	srv = httptest.NewUnstartedServer(h)
	if err := srv.Listener.Close(); err != nil {
		t.Fatal(err)
	}
	if srv.Listener, err = net.Listen("tcp", net.JoinHostPort(address, "0")); err != nil {
		t.Fatal(err)
	}
	srv.TLS = &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}}
	srv.Config.ErrorLog = nil
	srv.StartTLS()
	t.Cleanup(srv.Close)
	return srv, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

// TestAddURL shows that `choir add URL` imports a repository through egress, and that from then on
// its remote may be reached, and nothing else.
func TestAddURL(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	repo := filepath.Join(dir, "served", "project.git")
	if err := os.MkdirAll(repo, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(repo, "hello.txt"), []byte("hello\r\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	git(t, repo, "init", "-q", "-b", "main")
	git(t, repo, "add", ".")
	git(t, repo, "commit", "-q", "-m", "one")
	head := strings.TrimSpace(git(t, repo, "rev-parse", "HEAD"))
	srv, certificate := gitServer(t, filepath.Join(dir, "served"))
	ca := filepath.Join(dir, "ca.pem")
	if err := os.WriteFile(ca, certificate, 0o644); err != nil {
		t.Fatal(err)
	}
	large := filepath.Join(dir, "served", "large.git")
	if err := os.MkdirAll(large, 0o755); err != nil {
		t.Fatal(err)
	}
	noise := make([]byte, 6<<20)
	_, _ = rand.Read(noise) // it never fails
	if err := os.WriteFile(filepath.Join(large, "noise"), noise, 0o644); err != nil {
		t.Fatal(err)
	}
	git(t, large, "init", "-q", "-b", "main")
	git(t, large, "add", ".")
	git(t, large, "commit", "-q", "-m", "one")
	in := choirtest.Start(t, choirtest.Options{Env: []string{
		"CHOIR_EGRESS_CA_FILE=" + ca, "CHOIR_EGRESS_ALLOW_PRIVATE=" + srv.Listener.Addr().String(), "CHOIR_STORAGE_ADD_MB=4",
	}})
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	url := srv.URL + "/project.git"
	// Before it is added, its host can't be reached.
	if r, err := in.Run(ctx, "exec", "--", "git", "ls-remote", url); err != nil || r.Code == 0 {
		t.Fatalf("a host that was not granted: %v %+v", err, r)
	}
	var added view.Added
	in.JSON(t, &added, "add", url)
	if added.ID != "workspace/project" || added.Commit != head || added.Remote != url || added.Files == 0 {
		t.Errorf("added %+v; want commit %s", added, head)
	}
	if got := in.Must(t, "files", "cat", "workspace/project/hello.txt"); got != "hello\r\n" {
		t.Errorf("the file is %q", got)
	}
	allowed := 0
	for _, e := range eventsOf(t, in, "egress.allowed") {
		d := data[contract.EgressDecided](t, e)
		if net.JoinHostPort(d.Host, strconv.Itoa(d.Port)) == srv.Listener.Addr().String() {
			allowed++
		}
	}
	if allowed == 0 {
		t.Error("no egress.allowed tells of the clone")
	}
	// The default profile allows the remote that the host recorded.
	out := in.Must(t, "exec", "--cwd", "workspace/project", "--", "git", "ls-remote", "origin", "HEAD")
	if !strings.HasPrefix(out, head) {
		t.Errorf("the recorded remote says %q", out)
	}
	for what, bad := range map[string]string{"no repository": srv.URL + "/nothing.git", "nobody there": "https://127.0.0.2:1/x.git"} {
		r, err := in.Run(ctx, "add", bad)
		if err != nil {
			t.Fatal(err)
		}
		refused(t, what, r, 1)
	}
	r, err := in.Run(ctx, "add", "http://127.0.0.2/x.git")
	if err != nil {
		t.Fatal(err)
	}
	refused(t, "plain HTTP", r, 2, "https://") // the value is refused whatever the state of the machine
	// One that exceeds the setting is refused with the name of the setting.
	if r, err = in.Run(ctx, "add", srv.URL+"/large.git"); err != nil {
		t.Fatal(err)
	}
	refused(t, "a repository that is too large", r, 1, "more than 4 MiB", "nothing of it was brought in", "storage.add_mb")
	if left, _ := filepath.Glob(filepath.Join(in.Data, "computers", "*", "boxes", "*add-*")); len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
	usable(t, in)
	// A file of certificates that contains none is refused at the start.
	if err := os.WriteFile(ca, []byte("none"), 0o644); err != nil {
		t.Fatal(err)
	}
	refused(t, "no certificates", choir(t, []string{"CHOIR_EGRESS_CA_FILE=" + ca}, "up", "--data", filepath.Join(dir, "other"), "--listen", "127.0.0.1:0"), 2, "egress.ca_file")
}
