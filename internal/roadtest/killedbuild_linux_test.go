// SPDX-License-Identifier: Apache-2.0

package roadtest

import (
	"bufio"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/caisson-run/caisson/image/imagetest"
)

// A build that is killed, whatever it does, leaves nothing that runs and no template; the next
// one comes to all of it, and leaves nothing half made.
func TestKilledBuild(t *testing.T) {
	binary, dir := caissonBinary(t), t.TempDir()
	state, asked := filepath.Join(dir, "state"), make(chan struct{})
	run := func(args ...string) *exec.Cmd {
		cmd := exec.Command(binary, args...)
		cmd.Env = append(os.Environ(), "CAISSON_STATE="+state)
		return cmd
	}
	base := slowRegistry(t, asked)
	if err := os.WriteFile(filepath.Join(dir, "file"), []byte("file\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "Dockerfile"), []byte("FROM "+base+`
RUN echo one >/one; echo in the first
COPY file /file
RUN cat /one /file >/two; echo in the last
`), 0o600); err != nil {
		t.Fatal(err)
	}
	build := func() *exec.Cmd { return run("template", "build", "app", "--no-cache", dir) }
	t.Run("asking the registry", func(t *testing.T) {
		cmd := build()
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 1)
		go func() { ended <- cmd.Wait() }()
		select {
		case <-asked:
			cmd.Process.Kill()
			<-ended
		case err := <-ended:
			t.Fatalf("it never asked: %v", err)
		}
		nobodyHas(t, state)
	})
	phases := []string{"[1/3] RUN", "in the first", "[1/3] done", "[2/3] COPY", "in the last", "[3/3] done"}
	if testing.Short() {
		phases = phases[1:2]
	}
	for _, phase := range phases {
		t.Run(phase, func(t *testing.T) {
			killAt(t, build(), phase)
			nobodyHas(t, state)
			if phase != "[3/3] done" { // which may have its name by then
				if out, err := run("template", "show", "app").CombinedOutput(); err == nil {
					t.Errorf("there is a template: %s", out)
				}
			}
			if out, err := run("template", "build", "app", dir).CombinedOutput(); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			if out, err := run("run", "--template", "app", "--", "cat", "/two").Output(); string(out) != "one\nfile\n" {
				t.Errorf("%q, %v", out, err)
			}
			if left, _ := filepath.Glob(filepath.Join(state, "images", ".tmp-*")); len(left) > 0 {
				t.Errorf("left behind: %q", left)
			}
			if out, err := run("template", "rm", "app").CombinedOutput(); err != nil {
				t.Errorf("%v: %s", err, out)
			}
		})
	}
}

// killAt starts a build and kills it when a line of what it tells begins with text.
func killAt(t *testing.T, cmd *exec.Cmd, text string) {
	t.Helper()
	out, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var said []string
	for in := bufio.NewScanner(out); in.Scan(); {
		if said = append(said, in.Text()); strings.HasPrefix(in.Text(), text) {
			cmd.Process.Kill()
		}
	}
	cmd.Wait()
	if !slices.ContainsFunc(said, func(s string) bool { return strings.HasPrefix(s, text) }) {
		t.Errorf("it never came to %q:\n%s", text, strings.Join(said, "\n"))
	}
}

// slowRegistry is one whose first answer with a layer never comes: asked is closed then. It
// has the image that it returns.
func slowRegistry(t *testing.T, asked chan struct{}) (ref string) {
	t.Helper()
	host := imagetest.Registry(t)
	imagetest.New(t, imagetest.Config{}, imagetest.Programs(t, "bash", "sh", "cat"), imagetest.Layer(t, "etc/", "tmp/")).Push(host + "/acme/base:1")
	proxy := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: host})
	var once sync.Once
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.Contains(r.URL.Path, "/blobs/") {
			once.Do(func() { close(asked); <-r.Context().Done() })
		}
		proxy.ServeHTTP(w, r)
	}))
	t.Cleanup(s.Close)
	return strings.TrimPrefix(s.URL, "http://") + "/acme/base:1"
}
