// SPDX-License-Identifier: Apache-2.0

package e2b_test

import (
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/caisson-run/caisson/api/apitest"
	"github.com/caisson-run/caisson/image/imagetest"
)

// TestHTTPBin builds the template of examples/httpbin, whose Python is this host's here, and
// has a sandbox of it show what network.rules set in another one's request.
func TestHTTPBin(t *testing.T) {
	caisson := apitest.BuiltCaisson(t, "test-e2b")
	at, err := exec.Command("/usr/bin/python3", "-c", "import os; print(os.path.dirname(os.__file__))").Output()
	if err != nil {
		t.Skip("needs /usr/bin/python3")
	}
	library := strings.TrimSpace(string(at))
	host := imagetest.Registry(t)
	imagetest.New(t, imagetest.Config{}, imagetest.Programs(t, "bash", "sh", "sleep", "/usr/bin/python3"), imagetest.Tree(t, library, library[1:], 1<<30),
		imagetest.Layer(t, "tmp/", "etc/", "usr/local/", "usr/local/lib/")).Push(host + "/acme/python:1")
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS("../../examples/httpbin")); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "template.yaml")
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	here := strings.NewReplacer(`"debian:13"`, `"`+host+`/acme/python:1"`, "apt: [python3]\n", "").Replace(string(text))
	if err := os.WriteFile(file, []byte(here), 0o600); err != nil {
		t.Fatal(err)
	}
	var daemon *url.URL // is reached at an address that the policy names, which is there before it
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		httputil.NewSingleHostReverseProxy(daemon).ServeHTTP(w, r)
	}))
	defer front.Close()
	domain := "host.caisson.internal:" + strconv.Itoa(front.Listener.Addr().(*net.TCPAddr).Port)
	policy := filepath.Join(dir, "policy.yaml")
	if err := os.WriteFile(policy, []byte("version: 1\nnetwork: {allow: ['"+domain+"']}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"template", "build", "httpbin", "-f", file}, {"template", "share", "httpbin"}} {
		if out, err := caisson.Command(args...).Output(); err != nil {
			t.Fatalf("%v %s", err, out)
		}
	}
	if daemon, err = url.Parse(caisson.Serve(t, "--policy", policy, "--domain", domain)); err != nil {
		t.Fatal(err)
	}
	apitest.Node(t, "testdata/sdk", append(clientEnv(front.URL, caisson.Key(t, "mine"), false), "CAISSON_TEST_HTTPBIN=yes"), "--test-name-pattern=^httpbin", "rules.test.mjs")
}
