// SPDX-License-Identifier: Apache-2.0

package e2b_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/caisson-run/caisson/api/apitest"
	"github.com/caisson-run/caisson/image/imagetest"
)

// TestTemplateClient has E2B's client build templates on an image that the operator has pulled
// and that the key's policy names.
func TestTemplateClient(t *testing.T) {
	caisson := apitest.BuiltCaisson(t, "test-e2b")
	host := imagetest.Registry(t)
	imagetest.New(t, imagetest.Config{}, imagetest.Programs(t, "bash", "sh", "cat", "id", "readlink", "sleep", "whoami", "test"), imagetest.Layer(t, "tmp/", "etc/", "srv/")).Push(host + "/acme/base:1")
	if out, err := caisson.Command("image", "pull", host+"/acme/base:1").Output(); err != nil {
		t.Fatalf("%v %s", err, out)
	}
	name := filepath.Join(t.TempDir(), "p.yaml")
	if err := os.WriteFile(name, []byte("version: 1\nuser: sudoer\nimages: ['"+host+"/acme/*']\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	url := caisson.Serve(t, "--policy", name)
	tests := "^template:"
	if testing.Short() {
		tests += "(?! the command line)" // which starts Node.js seven times
	}
	apitest.Node(t, "testdata/sdk", append(clientEnv(url, caisson.Key(t, "mine"), false), "E2B_SDK=e2b", "CAISSON_TEST_IMAGE="+host+"/acme/base:1"), "--test-name-pattern="+tests, "template.test.mjs")
}
