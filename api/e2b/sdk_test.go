// SPDX-License-Identifier: Apache-2.0

package e2b_test

import (
	"bufio"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestSDK runs the tests in testdata/sdk: E2B's official clients, unmodified,
// against a built caisson serve and its default level. CAISSON_TEST_BINARY names
// the binary, make test-e2b sees to the clients.
func TestSDK(t *testing.T) {
	binary := os.Getenv("CAISSON_TEST_BINARY")
	if binary == "" {
		t.Skip("make test-e2b runs it")
	}
	state := filepath.Join(t.TempDir(), "state")
	caisson := func(args ...string) *exec.Cmd {
		cmd := exec.Command(binary, args...)
		cmd.Env = append(os.Environ(), "CAISSON_STATE="+state)
		cmd.Stderr = os.Stderr
		return cmd
	}
	key := func(name string) string {
		out, err := caisson("keys", "create", "--name", name).Output()
		if err != nil {
			t.Fatal(err)
		}
		return strings.TrimSpace(string(out))
	}
	mine, other := key("mine"), key("other")
	cert, certKey := certificate(t)
	policy := filepath.Join(t.TempDir(), "process.yaml")
	if err := os.WriteFile(policy, []byte("version: 1\nisolation: process\nenv: {pass: [FOO, BAR, MARK, LANG, LC_ALL, TERM]}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	const some = "create, use, kill|a command|write and read|a terminal$|another key"
	for _, c := range []struct {
		name, sdk, only string
		short           bool
		flags           []string
	}{
		{"newest", "e2b", "", true, nil},
		{"older", "e2b-older", "", false, nil},
		// Over TLS the client speaks HTTP/2.
		{"TLS", "e2b", some + "|signed|watched|output|port", false, []string{"--tls-cert", cert, "--tls-key", certKey}},
		{"process level", "e2b", "", false, []string{"--policy", policy}},
	} {
		if testing.Short() {
			if c.only = some; !c.short {
				continue
			}
		}
		t.Run(c.name, func(t *testing.T) {
			url := serve(t, caisson(append([]string{"serve", "--listen", "127.0.0.1:0"}, c.flags...)...))
			args := []string{"--test", "--test-concurrency=1"}
			if c.only != "" {
				args = append(args, "--test-name-pattern="+c.only)
			}
			cmd := exec.CommandContext(t.Context(), "node", args...)
			cmd.Dir = "testdata/sdk"
			lacking := "no"
			if c.name == "process level" {
				lacking = "yes"
			}
			cmd.Env = append(os.Environ(), "CAISSON_TEST_LACKING="+lacking, "E2B_SDK="+c.sdk, "E2B_API_URL="+url, "E2B_SANDBOX_URL="+url, "E2B_API_KEY="+mine,
				"CAISSON_OTHER_KEY="+other, "NODE_EXTRA_CA_CERTS="+cert)
			out, err := cmd.CombinedOutput()
			if err != nil {
				t.Errorf("%v\n%s", err, out)
			}
			if !regexp.MustCompile(`(?m)^# pass [1-9]`).Match(out) {
				t.Errorf("nothing passed:\n%s", out)
			}
		})
	}
}

// certificate makes a certificate for 127.0.0.1 that is its own authority.
func certificate(t *testing.T) (certFile, keyFile string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	cert, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	write := func(name, kind string, b []byte) string {
		file := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: b}), 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	return write("cert.pem", "CERTIFICATE", cert), write("key.pem", "PRIVATE KEY", private)
}

// serve starts a daemon and returns its URL. At the end of the test it has to
// end well.
func serve(t *testing.T, cmd *exec.Cmd) string {
	t.Helper()
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	t.Cleanup(func() {
		cmd.Process.Signal(syscall.SIGTERM)
		for lines.Scan() {
		}
		if err := cmd.Wait(); err != nil {
			t.Errorf("serve: %v", err)
		}
	})
	for lines.Scan() {
		if _, url, ok := strings.Cut(lines.Text(), "E2B_API_URL="); ok {
			return url
		}
	}
	t.Fatal("it says no URL")
	return ""
}
