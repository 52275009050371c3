// SPDX-License-Identifier: Apache-2.0

package e2b_test

import (
	"bytes"
	"crypto/tls"
	"encoding/json"
	"io/fs"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/caisson-run/caisson/api/apitest"
	"github.com/caisson-run/caisson/egress/ca"
	"github.com/caisson-run/caisson/egress/rule"
)

// TestHeaderRules runs the tests of network.rules: E2B's client, and a server on loopback that
// reflects what it gets. No record has a value, and no file once the sandboxes have ended.
func TestHeaderRules(t *testing.T) {
	caisson := apitest.BuiltCaisson(t, "test-e2b")
	plain, encrypted, authority := reflecting(t)
	file := filepath.Join(t.TempDir(), "policy.yaml")
	if err := os.WriteFile(file, []byte("version: 1\nnetwork: {allow: ['"+plain+"', '"+encrypted+"'], upstream_ca: '"+authority+"'}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	key := caisson.Key(t, "mine")
	t.Run("gvisor", func(t *testing.T) {
		url := caisson.Serve(t, "--policy", file)
		apitest.Node(t, "testdata/sdk", append(clientEnv(url, key, false), "CAISSON_TEST_REFLECT="+plain, "CAISSON_TEST_REFLECT_TLS="+encrypted), "--test-name-pattern=^rules", "rules.test.mjs")
	})
	records := 0
	err := filepath.WalkDir(caisson.State, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		b, err := os.ReadFile(path)
		if bytes.Contains(b, []byte("value-of-")) {
			t.Errorf("%s has a value", path)
		}
		if bytes.Contains(b, []byte("header X-Name to "+plain)) {
			records++
		}
		return err
	})
	if err != nil || records == 0 {
		t.Errorf("%v, and %d files say which header was set", err, records)
	}
}

// reflecting are servers on this host's loopback that answer with the headers they get, one of
// them with TLS, and the file of the authority that it is certified by.
func reflecting(t *testing.T) (plain, encrypted, authority string) {
	t.Helper()
	const name = "host.caisson.internal"
	h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, _ := json.Marshal(r.Header)
		_, _ = w.Write(bytes.ReplaceAll(b, []byte("value-of-the-"), []byte("the "))) // what programs print is recorded
	})
	a, err := ca.New(time.Now())
	if err != nil {
		t.Fatal(err)
	}
	n, err := rule.ParseName(name)
	if err != nil {
		t.Fatal(err)
	}
	issuer, err := a.Delegate([]rule.Name{n}, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	minter, err := ca.NewMinter(issuer)
	if err != nil {
		t.Fatal(err)
	}
	authority = filepath.Join(t.TempDir(), "authority.pem")
	if err := os.WriteFile(authority, a.PEM(), 0o600); err != nil {
		t.Fatal(err)
	}
	one, two := httptest.NewServer(h), httptest.NewUnstartedServer(h)
	two.TLS = &tls.Config{GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return minter.Leaf(n) }}
	two.StartTLS()
	t.Cleanup(one.Close)
	t.Cleanup(two.Close)
	at := func(s *httptest.Server) string {
		return name + ":" + strconv.Itoa(s.Listener.Addr().(*net.TCPAddr).Port)
	}
	return at(one), at(two), authority
}
