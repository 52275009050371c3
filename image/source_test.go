// SPDX-License-Identifier: Apache-2.0

package image_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/caisson-run/caisson/image"
	"github.com/caisson-run/caisson/image/imagetest"
	"github.com/caisson-run/caisson/image/reference"
	"github.com/caisson-run/caisson/sandbox"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func ref(t testing.TB, s string) reference.Ref {
	t.Helper()
	r, err := reference.Parse(s)
	must(t, err)
	return r
}

func TestParseConfig(t *testing.T) {
	c, ids, err := image.ParseConfig([]byte(`{"os":"linux","architecture":"` + runtime.GOARCH + `","config":{"User":"app","Env":["A=1","B="],
		"Entrypoint":["a"],"Cmd":["b","c"],"WorkingDir":"../srv/./app"},"rootfs":{"type":"layers","diff_ids":["sha256:` + strings.Repeat("a", 64) + `"]},"history":[{}]}`))
	if err != nil || c.User != "app" || len(c.Env) != 2 || c.String() != "[a b c]" || c.WorkingDir != "/srv/app" || len(ids) != 1 {
		t.Errorf("%+v, %v, %v", c, ids, err)
	}
	for name, text := range map[string]string{
		"no JSON":           `{`,
		"another system":    `{"os":"windows"}`,
		"another processor": `{"os":"linux","architecture":"s390x"}`,
		"no digest":         `{"rootfs":{"diff_ids":["md5:1"]}}`,
		"a NUL byte":        `{"config":{"Cmd":["a\u0000b"]}}`,
		"no variable":       `{"config":{"Env":["A"]}}`,
		"no name":           `{"config":{"Env":["=A"]}}`,
		"a long user":       `{"config":{"User":"` + strings.Repeat("u", 300) + `"}}`,
		"control":           `{"config":{"User":"\u001b[31m"}}`,
		"too many words":    `{"config":{"Cmd":[` + strings.Repeat(`"a",`, 5000) + `"a"]}}`,
		"too many layers":   `{"rootfs":{"diff_ids":[` + strings.Repeat(`"a",`, 600) + `"a"]}}`,
		"of another type":   `{"config":{"Cmd":"sh"}}`,
	} {
		if _, _, err := image.ParseConfig([]byte(text)); !errors.Is(err, sandbox.ErrInvalid) || sandbox.Hint(err) == "" {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestChangedLayouts changes a sound layout and wants each change to be seen.
func TestChangedLayouts(t *testing.T) {
	img := imagetest.New(t, imagetest.Config{}, imagetest.Layer(t, "a=1"))
	read := func(dir, name string) error {
		root, err := os.OpenRoot(dir)
		must(t, err)
		defer root.Close()
		found, err := image.Layout(root, name)
		if err == nil {
			for _, l := range found.Layers {
				var rc io.ReadCloser
				if rc, err = l.Open(); err == nil {
					rc.Close()
				}
			}
		}
		return err
	}
	manifest := "blobs/sha256/" + strings.TrimPrefix(img.Digest(), "sha256:")
	config, err := img.ConfigName()
	must(t, err)
	outside := filepath.Join(t.TempDir(), "secret")
	must(t, os.WriteFile(outside, []byte("{}"), 0o600))
	tests := map[string]func(dir string) error{
		"":                     func(string) error { return nil },
		"no index":             func(d string) error { return os.Remove(d + "/index.json") },
		"index is no JSON":     func(d string) error { return os.WriteFile(d+"/index.json", []byte("x"), 0o644) },
		"index is empty":       func(d string) error { return os.WriteFile(d+"/index.json", []byte("{}"), 0o644) },
		"index is a link out":  func(d string) error { os.Remove(d + "/index.json"); return os.Symlink(outside, d+"/index.json") },
		"index is huge":        func(d string) error { return os.Truncate(d+"/index.json", 100<<20) },
		"index is a directory": func(d string) error { os.Remove(d + "/index.json"); return os.Mkdir(d+"/index.json", 0o755) },
		"manifest was changed": func(d string) error { return os.WriteFile(filepath.Join(d, manifest), []byte("{}"), 0o644) },
		"manifest is missing":  func(d string) error { return os.Remove(filepath.Join(d, manifest)) },
		"config was changed":   func(d string) error { return os.WriteFile(d+"/blobs/sha256/"+config.Hex, []byte("{}"), 0o644) },
		"a digest with dots":   func(d string) error { return edit(d+"/index.json", img.Digest(), "sha256:../../../../etc/passwd") },
		"another processor": func(d string) error {
			return edit(d+"/index.json", `"digest"`, `"platform":{"os":"linux","architecture":"s390x"},"digest"`)
		},
		"a layer is a link out": func(d string) error { return relink(t, img, d, outside) },
	}
	for name, change := range tests {
		dir := filepath.Join(t.TempDir(), "layout")
		img.Layout(dir)
		must(t, change(dir))
		err := read(dir, "")
		if name == "" {
			must(t, err)
			if err := read(dir, "no-such-name"); !errors.Is(err, sandbox.ErrNotFound) {
				t.Errorf("another name: %v", err)
			}
			must(t, read(dir, img.Digest()))
			continue
		}
		if err == nil {
			t.Errorf("%s: it was taken", name)
		}
		if strings.HasSuffix(name, "link out") && (!errors.Is(err, sandbox.ErrInvalid) || sandbox.Hint(err) == "") {
			t.Errorf("%s: %v (%s)", name, err, sandbox.Hint(err))
		}
	}
}

func edit(file, from, to string) error {
	b, err := os.ReadFile(file)
	if err == nil && !bytes.Contains(b, []byte(from)) {
		err = fmt.Errorf("%s holds no %s", file, from)
	}
	if err != nil {
		return err
	}
	return os.WriteFile(file, bytes.ReplaceAll(b, []byte(from), []byte(to)), 0o644)
}

func relink(t *testing.T, img *imagetest.Image, dir, to string) error {
	layers, err := img.Layers()
	must(t, err)
	h, err := layers[0].Digest()
	must(t, err)
	at := filepath.Join(dir, "blobs/sha256", h.Hex)
	must(t, os.Remove(at))
	return os.Symlink(to, at)
}

// TestArchives reads what docker save writes, and what it never writes.
func TestArchives(t *testing.T) {
	img := imagetest.New(t, imagetest.Config{}, imagetest.Layer(t, "a=1"))
	dir := t.TempDir()
	good := filepath.Join(dir, "good.tar")
	img.Archive(good, "acme/x:1")
	read := func(b []byte, name string) error {
		file := filepath.Join(dir, "x.tar")
		must(t, os.WriteFile(file, b, 0o644))
		f, err := os.Open(file)
		must(t, err)
		defer f.Close()
		_, err = image.Archive(f, name)
		return err
	}
	b, err := os.ReadFile(good)
	must(t, err)
	must(t, read(b, ""))
	must(t, read(b, "acme/x:1"))
	manifest := func(s string) []byte { return imagetest.Layer(t, "c.json={}", "manifest.json="+s) }
	for name, b := range map[string][]byte{
		"empty":             {},
		"no archive":        []byte(strings.Repeat("x", 2048)),
		"compressed":        {0x1f, 0x8b, 8, 0},
		"no manifest":       imagetest.Layer(t, "a=1"),
		"manifest no JSON":  manifest("x"),
		"two images":        manifest(`[{"Config":"c.json"},{"Config":"c.json"}]`),
		"no image":          manifest(`[]`),
		"no config":         manifest(`[{"Config":"/etc/passwd"}]`),
		"config above":      manifest(`[{"Config":"../../../etc/passwd"}]`),
		"more layers":       manifest(`[{"Config":"c.json","Layers":["/etc/passwd"]}]`),
		"a circle of links": imagetest.Layer(t, "manifest.json->b", "b->manifest.json"),
		"a link out":        imagetest.Layer(t, "manifest.json->/etc/passwd"),
	} {
		if err := read(b, ""); err == nil || sandbox.Hint(err) == "" {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := read(b, "acme/y"); !errors.Is(err, sandbox.ErrNotFound) {
		t.Errorf("another name: %v", err)
	}
}

// TestRegistryLeadsAway lets a registry on loopback, which may speak plain
// HTTP, send us to others that may not.
func TestRegistryLeadsAway(t *testing.T) {
	asked := 0
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { asked++; io.WriteString(w, "{}") }))
	defer other.Close()
	for name, answer := range map[string]http.HandlerFunc{
		"a redirect": func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/v2/" {
				return
			}
			http.Redirect(w, r, other.URL+"/metadata", http.StatusTemporaryRedirect)
		},
		"a token server": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("WWW-Authenticate", `Bearer realm="`+other.URL+`/token",service="x"`)
			w.WriteHeader(http.StatusUnauthorized)
		},
	} {
		s := httptest.NewServer(answer)
		_, err := image.Pull(t.Context(), ref(t, strings.TrimPrefix(s.URL, "http://")+"/x"), image.RegistryOptions{})
		// The library itself refuses token servers on private addresses.
		if err == nil || name == "a redirect" && !errors.Is(err, sandbox.ErrDenied) {
			t.Errorf("%s: %v", name, err)
		}
		s.Close()
	}
	if asked > 0 {
		t.Errorf("somebody else was asked %d times", asked)
	}
}

// TestRegistryLies changes what a registry answers.
func TestRegistryLies(t *testing.T) {
	img := imagetest.New(t, imagetest.Config{}, imagetest.Layer(t, "a=1"))
	host := imagetest.Registry(t)
	img.Push(host + "/x:1")
	for name, change := range map[string]func(path string, b []byte) []byte{
		"manifest for a digest": func(p string, b []byte) []byte {
			if strings.Contains(p, "/manifests/") {
				return bytes.Replace(b, []byte(`"schemaVersion":2`), []byte(`"schemaVersion": 2`), 1)
			}
			return b
		},
		"a foreign layer": func(p string, b []byte) []byte {
			if strings.Contains(p, "/manifests/") {
				return bytes.ReplaceAll(b, []byte("rootfs.diff.tar.gzip"), []byte("rootfs.foreign.diff.tar.gzip"))
			}
			return b
		},
		"no end of a manifest": func(p string, b []byte) []byte {
			if strings.Contains(p, "/manifests/") {
				return append(b, bytes.Repeat([]byte(" "), 64<<20)...)
			}
			return b
		},
		"another configuration": func(p string, b []byte) []byte {
			if json.Valid(b) && strings.Contains(p, "/blobs/") {
				return bytes.ReplaceAll(b, []byte("linux"), []byte("minix"))
			}
			return b
		},
	} {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			resp, err := http.Get("http://" + host + r.URL.Path)
			if err != nil {
				t.Error(err)
				return
			}
			defer resp.Body.Close()
			b, _ := io.ReadAll(resp.Body)
			if t := resp.Header.Get("Content-Type"); t != "" {
				w.Header().Set("Content-Type", t)
			}
			w.WriteHeader(resp.StatusCode)
			w.Write(change(r.URL.Path, b))
		}))
		at := strings.TrimPrefix(s.URL, "http://") + "/x@" + img.Digest()
		if name == "a foreign layer" { // by its tag: the digest would tell
			at = strings.TrimPrefix(s.URL, "http://") + "/x:1"
		}
		_, err := image.Pull(t.Context(), ref(t, at), image.RegistryOptions{})
		if err == nil || sandbox.Hint(err) == "" {
			t.Errorf("%s: %v", name, err)
		}
		s.Close()
	}
	if _, err := image.Pull(t.Context(), ref(t, host+"/no/such:1"), image.RegistryOptions{}); !errors.Is(err, sandbox.ErrNotFound) {
		t.Errorf("no such image: %v", err)
	}
}

// FuzzConfig: whatever is taken can be handed to a program.
func FuzzConfig(f *testing.F) {
	f.Add([]byte(`{"config":{"User":"a:b","Env":["A=1"],"Cmd":["x"],"WorkingDir":"/x"},"rootfs":{"diff_ids":[]}}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		c, _, err := image.ParseConfig(b)
		if err != nil {
			if sandbox.Hint(err) == "" {
				t.Errorf("no hint: %v", err)
			}
			return
		}
		for _, s := range append(append(c.Cmd, c.Entrypoint...), c.Env...) {
			if strings.ContainsRune(s, 0) {
				t.Errorf("%q holds a NUL byte", s)
			}
		}
		if c.WorkingDir != "" && filepath.Clean(c.WorkingDir) != c.WorkingDir {
			t.Errorf("working directory %q", c.WorkingDir)
		}
	})
}

// FuzzLayout: whatever index.json says, no panic and no file outside.
func FuzzLayout(f *testing.F) {
	f.Add([]byte(`{"manifests":[{"mediaType":"application/vnd.oci.image.manifest.v1+json","digest":"sha256:`+strings.Repeat("0", 64)+`","size":2,"platform":{"os":"linux"}}]}`), []byte(`{"layers":[{}],"config":{"digest":"x"}}`))
	f.Fuzz(func(t *testing.T, index, blob []byte) {
		dir := t.TempDir()
		must(t, os.MkdirAll(dir+"/blobs/sha256", 0o755))
		must(t, os.WriteFile(dir+"/index.json", index, 0o644))
		must(t, os.WriteFile(dir+"/blobs/sha256/"+strings.Repeat("0", 64), blob, 0o644))
		root, err := os.OpenRoot(dir)
		must(t, err)
		defer root.Close()
		if _, err := image.Layout(root, ""); err == nil {
			t.Error("a digest of zeros was found")
		}
	})
}

// Who is not the operator gets images of public registries alone, whatever name leads to
// another one; the registry is not even asked.
func TestPublicRegistries(t *testing.T) {
	asked := false
	s := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked = true }))
	defer s.Close()
	t.Setenv("HTTP_PROXY", s.URL)
	t.Setenv("HTTPS_PROXY", s.URL)
	_, port, err := net.SplitHostPort(s.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	for _, host := range []string{"127.0.0.1:" + port, "localhost:" + port, "10.0.0.1:1", "169.254.169.254:80", "[::1]:" + port} {
		r, err := reference.Parse(host + "/x:1")
		if err != nil {
			t.Logf("%s: %v", host, err)
			continue
		}
		_, err = image.Pull(t.Context(), r, image.RegistryOptions{Public: true, Insecure: true})
		if !errors.Is(err, sandbox.ErrDenied) {
			t.Errorf("%s: %v", host, err)
		}
	}
	if asked {
		t.Error("it was asked")
	}
}
