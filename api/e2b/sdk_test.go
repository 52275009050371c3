// SPDX-License-Identifier: Apache-2.0

package e2b_test

import (
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
	"testing"
	"time"

	"github.com/caisson-run/caisson/api/apitest"
	"github.com/caisson-run/caisson/policy"
)

// TestSDK runs the tests in testdata/sdk: E2B's official clients, unmodified,
// against a built caisson serve and its default level. make test-e2b sees to the
// clients.
func TestSDK(t *testing.T) {
	caisson := apitest.BuiltCaisson(t, "test-e2b")
	mine, other := caisson.Key(t, "mine"), caisson.Key(t, "other")
	cert, certKey := certificate(t)
	process := policyFile(t, "process")
	const some = "create, use, kill|a command|write and read|a terminal$|another key|the command line shows"
	for _, c := range []struct {
		name, sdk, only string
		short           bool
		lacking         bool
		flags           []string
	}{
		{"newest", "e2b", "", true, false, nil},
		{"older", "e2b-older", "", false, false, nil},
		// Over TLS the client speaks HTTP/2.
		{"TLS", "e2b", some + "|signed|watched|output|port", false, false, []string{"--tls-cert", cert, "--tls-key", certKey}},
		{"process level", "e2b", "", false, true, []string{"--policy", process}},
		{"as E2B's cloud", "e2b", "", false, false, []string{"--policy", cloudPolicy(t)}},
	} {
		if testing.Short() {
			if c.only = some; !c.short {
				continue
			}
		}
		t.Run(c.name, func(t *testing.T) {
			url := caisson.Serve(t, c.flags...)
			var args []string
			if c.only != "" {
				args = append(args, "--test-name-pattern="+c.only)
			}
			env := clientEnv(url, mine, c.lacking)
			if c.name == "as E2B's cloud" {
				env = append(env, "CAISSON_TEST_INTERNET=yes")
			}
			apitest.Node(t, "testdata/sdk", append(env, "E2B_SDK="+c.sdk, "CAISSON_OTHER_KEY="+other, "CAISSON_TEST_CANARY="+canary(t), "NODE_EXTRA_CA_CERTS="+cert), args...)
		})
	}
}

// TestInterpreter runs the tests in testdata/interpreter: E2B's code interpreter.
func TestInterpreter(t *testing.T) {
	caisson := apitest.BuiltCaisson(t, "test-e2b")
	key := caisson.Key(t, "mine")
	env := []string{"CAISSON_TEST_SCIENCE=no"}
	if exec.Command("python3", "-c", "import matplotlib, pandas").Run() == nil {
		env[0] = "CAISSON_TEST_SCIENCE=yes"
	}
	for _, c := range []struct {
		name, client, level string
		short               bool
	}{
		{"newest", "@e2b/code-interpreter", "", true}, {"older", "code-interpreter-older", "", false}, {"process level", "@e2b/code-interpreter", "process", false},
	} {
		if testing.Short() && !c.short {
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			var flags []string
			if c.level != "" {
				flags = []string{"--policy", policyFile(t, c.level)}
			}
			env := append(env, "CAISSON_INTERPRETER="+c.client)
			apitest.Node(t, "testdata/interpreter", append(env, clientEnv(caisson.Serve(t, flags...), key, c.level != "")...))
		})
	}
}

// TestFrameworks runs the tests in testdata/frameworks: what others have built on
// E2B's client, ComputeSDK and OpenAI's Agents SDK, which is given a scripted model.
func TestFrameworks(t *testing.T) {
	caisson := apitest.BuiltCaisson(t, "test-e2b")
	if testing.Short() {
		t.Skip("make test-e2b runs it; make test brings E2B's client alone")
	}
	key := caisson.Key(t, "mine")
	t.Run("gvisor", func(t *testing.T) {
		apitest.Node(t, "testdata/frameworks", clientEnv(caisson.Serve(t), key, false))
	})
	t.Run("process", func(t *testing.T) {
		apitest.Node(t, "testdata/frameworks", clientEnv(caisson.Serve(t, "--policy", policyFile(t, "process")), key, true))
	})
}

// clientEnv is the environment of E2B's client. lacking says that the level has no
// root of its own and no kernel that can be written down: it refuses both by name.
func clientEnv(url, key string, lacking bool) []string {
	env := []string{"E2B_API_URL=" + url, "E2B_SANDBOX_URL=" + url, "E2B_API_KEY=" + key}
	if lacking {
		env = append(env, "CAISSON_TEST_LACKING=yes")
	}
	return env
}

// canary is a file on the host, which is as it was when the test ends.
func canary(t *testing.T) string {
	t.Helper()
	const text = "of the host"
	name := filepath.Join(t.TempDir(), "canary")
	if err := os.WriteFile(name, []byte(text), 0o666); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if b, err := os.ReadFile(name); err != nil || string(b) != text {
			t.Errorf("the host's file holds %q, %v", b, err)
		}
	})
	return name
}

// policyFile is a policy for a level on which the clients may set the variables that
// the tests want.
func policyFile(t *testing.T, level string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), level+".yaml")
	if err := os.WriteFile(name, []byte("version: 1\nisolation: "+level+"\nenv: {pass: [FOO, OF_THE_BOX, BAR, MARK, LANG, LC_ALL, TERM, WATCH]}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

// cloudPolicy is the policy file of docs/e2b.md.
func cloudPolicy(t *testing.T) string {
	t.Helper()
	src, err := policy.Preset("e2b")
	name := filepath.Join(t.TempDir(), "e2b.yaml")
	if err == nil {
		err = os.WriteFile(name, src, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	return name
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
