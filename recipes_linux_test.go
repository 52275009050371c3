// SPDX-License-Identifier: Apache-2.0

package caisson_test

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"crypto/sha512"
	"encoding/base64"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// What docs/recipes shows is what happens. A block whose language is followed by a name
// is that file. A console block is commands, each in the page's directory, with what it
// prints, both streams together; "…" stands for anything, alone in a line for any lines. After the word
// "later" are blocks that take long or want much installed: make test-recipes runs them. "needs=" are programs,
// or packages of npm: a block is left out, by name, where one is missing.
//
// Presets are replaced by packages that the test serves: no test leaves this machine.
func TestRecipes(t *testing.T) {
	pages, err := filepath.Glob("docs/recipes/*.md")
	if err != nil || len(pages) == 0 {
		t.Fatalf("%d pages, %v", len(pages), err)
	}
	for i, page := range pages {
		pages[i], _ = filepath.Abs(page)
	}
	keepToolchains(t)
	here, home := tourPlace(t)
	index := packageIndex(t)
	for _, page := range pages {
		t.Run(filepath.Base(page), func(t *testing.T) {
			dir := t.TempDir()
			r := &recipes{dir: dir, index: index, names: strings.NewReplacer(dir, "$PWD", here, "$PWD", home, "$HOME")}
			for _, b := range pageBlocks(t, page) {
				r.run(t, b)
			}
		})
	}
}

// keepToolchains has tools that look into the home find what they have there, whatever
// home the test has.
func keepToolchains(t *testing.T) {
	t.Helper()
	home, err := os.UserHomeDir()
	if err != nil {
		t.Fatal(err)
	}
	for name, dir := range map[string]string{"RUSTUP_HOME": ".rustup", "CARGO_HOME": ".cargo", "GOCACHE": ".cache/go-build"} {
		if os.Getenv(name) == "" {
			t.Setenv(name, filepath.Join(home, dir))
		}
	}
}

// block is a fenced part of a page.
type block struct {
	info []string // what stands after the fence
	text string
}

func pageBlocks(t *testing.T, page string) (all []block) {
	t.Helper()
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range regexp.MustCompile("(?ms)^```([^\n]+)\n(.*?)^```$").FindAllSubmatch(text, -1) {
		all = append(all, block{strings.Fields(string(m[1])), string(m[2])})
		if info := all[len(all)-1].info; len(info) == 1 && info[0] != "console" && !bytes.Contains(text, []byte("not run by our tests")) {
			t.Errorf("a block of %s is no file and no console, and the page does not say that it is not run by our tests", info[0])
		}
	}
	return all
}

// recipes are those of one page.
type recipes struct {
	dir   string
	index string // host and port of the packages
	names *strings.Replacer
}

func (r *recipes) run(t *testing.T, b block) {
	t.Helper()
	if b.info[0] != "console" {
		if len(b.info) == 2 {
			if err := os.WriteFile(filepath.Join(r.dir, b.info[1]), []byte(b.text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		return
	}
	for _, word := range b.info[1:] {
		if word == "later" && os.Getenv("CAISSON_TEST_RECIPES") == "" {
			return
		}
		needs, _ := strings.CutPrefix(word, "needs=")
		for _, need := range strings.Split(needs, ",") {
			if word != "later" && !r.has(t, need) {
				t.Logf("left out, as there is no %s here:\n%s", need, b.text)
				return
			}
		}
	}
	for _, step := range strings.Split("\n"+b.text, "\n$ ")[1:] {
		command, want, _ := strings.Cut(strings.TrimSuffix(step, "\n"), "\n")
		cmd := exec.Command("bash", "-c", r.local(command))
		cmd.Dir = r.dir
		out, _ := cmd.CombinedOutput()
		got := strings.TrimSuffix(r.names.Replace(withoutNotes(out)), "\n")
		if os.Geteuid() != 0 && strings.Contains(got, "cannot be enforced on gvisor here") {
			return // as README says of users without control groups
		}
		if !matches(want, got) {
			t.Errorf("$ %s\n%s\nwant\n%s", command, got, want)
		}
	}
}

// has says whether a program is on this host, or fetches a package of npm's.
func (r *recipes) has(t *testing.T, need string) bool {
	t.Helper()
	if need != "playwright-core" {
		_, err := exec.LookPath(need)
		return err == nil
	}
	cmd := exec.Command("npm", "install", "--prefix", r.dir, need)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Logf("%s", out)
	}
	return err == nil
}

// local has tools get packages from the test.
func (r *recipes) local(command string) string {
	allow := "--allow " + r.index
	return strings.NewReplacer(
		"--allow preset:npm", allow+" --env npm_config_registry=http://"+r.index+"/npm/",
		"--allow preset:pip", allow+" --env PIP_INDEX_URL=http://"+r.index+"/simple/ --env PIP_TRUSTED_HOST=host.caisson.internal",
		"--allow preset:go", allow+" --env GOPROXY=http://"+r.index+"/go --env GOSUMDB=off",
	).Replace(command)
}

// matches compares what was printed with what a page shows.
func matches(want, got string) bool {
	pattern := regexp.QuoteMeta("\n" + want)
	pattern = strings.ReplaceAll(pattern, "\n…", `(\n.*)*?`)
	pattern = strings.ReplaceAll(pattern, "…", ".*")
	return regexp.MustCompile(`^` + pattern + `$`).MatchString("\n" + got)
}

func TestMatches(t *testing.T) {
	for _, tc := range []struct {
		want, got string
		ok        bool
	}{
		{"a", "a", true}, {"a", "ab", false}, {"a", "a\nb", false}, {"a…c", "abc", true}, {"a…c", "a\nc", false},
		{"…\na", "a", true}, {"…\na", "b\nc\na", true}, {"…\na\n…", "b\na\nc", true}, {"…\na", "b", false}, {"…", "", true}, {"a.c", "abc", false},
	} {
		if ok := matches(tc.want, tc.got); ok != tc.ok {
			t.Errorf("matches(%q, %q) = %v", tc.want, tc.got, ok)
		}
	}
}

// packageIndex serves a package each as npm, pip and go ask for them, and says where a
// sandbox finds it.
func packageIndex(t *testing.T) string {
	t.Helper()
	var address string
	tgz, wheel, module := tarball(t), zipOf(t, map[string]string{
		"six.py": "", "six-1.0.dist-info/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
		"six-1.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: six\nVersion: 1.0\n", "six-1.0.dist-info/RECORD": "",
	}), zipOf(t, map[string]string{"example.com/hello@v1.0.0/hello.go": "package hello\n"})
	sum := sha512.Sum512(tgz)
	info := `{"Version":"v1.0.0","Time":"2026-01-01T00:00:00Z"}`
	pages := map[string]func() string{
		"/simple/six/": func() string {
			return `<!DOCTYPE html><a href="/six-1.0-py3-none-any.whl">six-1.0-py3-none-any.whl</a>`
		},
		"/npm/is-odd": func() string {
			return fmt.Sprintf(`{"name":"is-odd","dist-tags":{"latest":"1.0.0"},"versions":{"1.0.0":{"name":"is-odd","version":"1.0.0","dist":{"tarball":"http://%s/is-odd.tgz","integrity":"sha512-%s"}}}}`,
				address, base64.StdEncoding.EncodeToString(sum[:]))
		},
		"/six-1.0-py3-none-any.whl":            func() string { return string(wheel) },
		"/is-odd.tgz":                          func() string { return string(tgz) },
		"/go/example.com/hello/@v/list":        func() string { return "v1.0.0\n" },
		"/go/example.com/hello/@v/v1.0.0.info": func() string { return info },
		"/go/example.com/hello/@v/v1.0.0.mod":  func() string { return "module example.com/hello\n" },
		"/go/example.com/hello/@v/v1.0.0.zip":  func() string { return string(module) },
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		page := pages[r.URL.Path]
		if page == nil {
			http.NotFound(w, r)
			return
		}
		if strings.HasSuffix(r.URL.Path, "/") {
			w.Header().Set("Content-Type", "text/html")
		}
		_, _ = w.Write([]byte(page()))
	}))
	t.Cleanup(server.Close)
	_, port, _ := net.SplitHostPort(server.Listener.Addr().String())
	address = "host.caisson.internal:" + port
	return address
}

func tarball(t *testing.T) []byte {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	w := tar.NewWriter(z)
	const text = `{"name":"is-odd","version":"1.0.0"}`
	err := w.WriteHeader(&tar.Header{Name: "package/package.json", Mode: 0o644, Size: int64(len(text))})
	if err != nil {
		t.Fatal(err)
	}
	_, _ = w.Write([]byte(text))
	for _, close := range []func() error{w.Close, z.Close} {
		if err := close(); err != nil {
			t.Fatal(err)
		}
	}
	return b.Bytes()
}

func zipOf(t *testing.T, files map[string]string) []byte {
	t.Helper()
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	for name, text := range files {
		f, err := z.Create(name)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = f.Write([]byte(text))
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}
