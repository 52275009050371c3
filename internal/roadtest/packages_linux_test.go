// SPDX-License-Identifier: Apache-2.0

package roadtest

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"crypto/sha512"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/image/imagetest"
)

// A package index of the test's own internet: a wheel below /simple/, a package
// of npm's below /npm/.

const (
	wheelName   = "caisson_demo-1.0-py3-none-any.whl"
	packageName = "caisson-demo"
)

// servePackages answers requests for packages; false is for another handler.
func servePackages(w http.ResponseWriter, r *http.Request) bool {
	base := "https://" + r.Host
	tarball := npmTarball()
	switch r.URL.Path {
	case "/simple/caisson-demo/":
		w.Header().Set("Content-Type", "text/html")
		fmt.Fprintf(w, `<!DOCTYPE html><html><body><a href="%s/files/%s">%s</a></body></html>`, base, wheelName, wheelName)
	case "/files/" + wheelName:
		_, _ = w.Write(wheel())
	case "/npm/" + packageName:
		sum := sha512.Sum512(tarball)
		version := map[string]any{"name": packageName, "version": "1.0.0", "dist": map[string]string{
			"tarball": base + "/npm/" + packageName + "/-/" + packageName + "-1.0.0.tgz", "integrity": "sha512-" + base64.StdEncoding.EncodeToString(sum[:])}}
		_ = json.NewEncoder(w).Encode(map[string]any{"name": packageName, "dist-tags": map[string]string{"latest": "1.0.0"}, "versions": map[string]any{"1.0.0": version}})
	case "/npm/" + packageName + "/-/" + packageName + "-1.0.0.tgz":
		_, _ = w.Write(tarball)
	default:
		return false
	}
	return true
}

// wheel is a package for pip (PEP 427).
func wheel() []byte {
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	record := ""
	add := func(name, text string) {
		f, _ := z.Create(name)
		_, _ = f.Write([]byte(text))
		record += name + ",,\n"
	}
	add("caisson_demo.py", "print('hello from a wheel')\n")
	add("caisson_demo-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: caisson-demo\nVersion: 1.0\n")
	add("caisson_demo-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
	add("caisson_demo-1.0.dist-info/RECORD", record+"caisson_demo-1.0.dist-info/RECORD,,\n")
	_ = z.Close()
	return b.Bytes()
}

// npmTarball is a package for npm.
func npmTarball() []byte {
	var b bytes.Buffer
	g := gzip.NewWriter(&b)
	w := tar.NewWriter(g)
	for _, f := range [][2]string{
		{"package/package.json", `{"name":"` + packageName + `","version":"1.0.0","main":"index.js"}`},
		{"package/index.js", "module.exports = 'hello from a tarball'\n"},
	} {
		_ = w.WriteHeader(&tar.Header{Name: f[0], Mode: 0o644, Size: int64(len(f[1])), Format: tar.FormatUSTAR})
		_, _ = w.Write([]byte(f[1]))
	}
	_ = w.Close()
	_ = g.Close()
	return b.Bytes()
}

// pip and npm install what an index has, with their TLS whole and with it ended,
// and nothing else.
func TestPackageManagers(t *testing.T) {
	onInternet(t, func(t *testing.T) {
		ca := plugIn(t)
		managers := map[string]struct{ command, want string }{
			"pip":            {"python3 -m pip install -q --no-cache-dir --disable-pip-version-check --retries 0 --index-url https://good.example.com/simple/ --target /tmp/p caisson-demo && PYTHONPATH=/tmp/p python3 -m caisson_demo", "hello from a wheel"},
			"npm":            {"cd /tmp && npm install --no-audit --no-fund --no-update-notifier --fetch-retries=0 --registry https://good.example.com/npm/ " + packageName + " && node -p 'require(\"" + packageName + "\")'", "hello from a tarball"},
			"pip, elsewhere": {"python3 -m pip install -q --no-cache-dir --disable-pip-version-check --retries 0 --index-url https://evil.example.com/simple/ --target /tmp/q caisson-demo; test ! -e /tmp/q/caisson_demo.py && echo nothing", "nothing"},
			"npm, elsewhere": {"mkdir -p /tmp/n && cd /tmp/n && npm install --no-audit --no-fund --fetch-retries=0 --registry https://evil.example.com/npm/ " + packageName + "; test ! -e node_modules/" + packageName + " && echo nothing", "nothing"},
		}
		for _, program := range []string{"npm"} { // where there is one
			if _, err := exec.LookPath("/usr/bin/" + program); err != nil {
				delete(managers, program)
				delete(managers, program+", elsewhere")
			}
		}
		commands := map[string]string{}
		for name, m := range managers {
			commands[name] = m.command
		}
		for name, ended := range map[string]bool{"TLS whole": false, "TLS ended": true} {
			t.Run(name, func(t *testing.T) {
				req := caisson.Request{Command: all(commands)}
				text := "version: 1\nnetwork: {allow: [good.example.com]}\n"
				if ended {
					text = "version: 1\nnetwork: {allow: [{host: good.example.com, methods: [GET]}], upstream_ca: " + ca + "}\n"
				} else {
					text = "version: 1\nnetwork: {allow: [good.example.com]}\nfiles: {mounts: [{source: " + ca + ", target: /home/user/ca.pem}]}\n"
					req.Env = map[string]string{"PIP_CERT": "/home/user/ca.pem", "npm_config_cafile": "/home/user/ca.pem"}
					text += "env: {pass: [PIP_CERT, npm_config_cafile]}\n"
				}
				c := withPolicy(t, text)
				res, err := c.Run(t.Context(), req)
				if err != nil {
					t.Fatal(err)
				}
				got := outputs(t, res)
				for name, m := range managers {
					if !strings.HasSuffix(got[name], m.want) {
						t.Errorf("%s: %q; want %q", name, got[name], m.want)
					}
				}
				if len(res.Posture.Ended) > 0 != ended {
					t.Errorf("the TLS of %q is ended", res.Posture.Ended)
				}
			})
		}
	})
}

func withPolicy(t *testing.T, text string) *caisson.Caisson {
	t.Helper()
	file := filepath.Join(t.TempDir(), "policy.yaml")
	if err := os.WriteFile(file, []byte(text+"limits: {wall: 2m, memory: 2GiB, disk: 1GiB, tmp: 512MiB, processes: 512}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := caisson.Open(t.Context(), caisson.Options{Policy: file})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// Java reads no PEM: it trusts the router by a key store that it is told of.
func TestJavaTrust(t *testing.T) {
	if _, err := os.Stat("/usr/bin/java"); err != nil {
		if out, err := exec.Command(".ci/need", "default-jre-headless").CombinedOutput(); err != nil {
			t.Skipf("needs Java: %s", out)
		}
	}
	onInternet(t, func(t *testing.T) {
		ca := plugIn(t)
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "Ask.class"), javaClass(), 0o644); err != nil {
			t.Fatal(err)
		}
		c := withPolicy(t, "version: 1\nnetwork: {allow: [{host: good.example.com, methods: [GET]}, other.example.com], upstream_ca: "+ca+"}\nfiles: {mounts: [{source: "+dir+", target: /home/user/java}]}\n")
		res, err := c.Run(t.Context(), caisson.Request{
			Command: all(map[string]string{
				"ended":       "java -Xint -XX:TieredStopAtLevel=1 -cp /home/user/java Ask https://good.example.com/",
				"its own way": "unset JAVA_TOOL_OPTIONS; java -cp /home/user/java Ask https://good.example.com/",
			}),
		})
		if err != nil {
			t.Fatal(err)
		}
		got := outputs(t, res)
		if !strings.Contains(got["ended"], "good host") {
			t.Errorf("Java does not trust the router: %s", got["ended"])
		}
		if !strings.Contains(got["its own way"], "PKIX") { // so that the test can fail
			t.Errorf("without being told it says %s", got["its own way"])
		}
	})
}

// javaClass is a compiled program, by hand, since a runtime has no compiler:
//
//	class Ask { public static void main(String[] a) throws Exception {
//		new java.net.URL(a[0]).openStream().transferTo(System.out); } }
func javaClass() []byte {
	var pool []byte
	n := uint16(0)
	add := func(tag byte, b ...byte) uint16 {
		pool = append(append(pool, tag), b...)
		n++
		return n
	}
	two := func(a, b uint16) []byte {
		return binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint16(nil, a), b)
	}
	utf8 := func(s string) uint16 {
		return add(1, append(binary.BigEndian.AppendUint16(nil, uint16(len(s))), s...)...)
	}
	class := func(s string) uint16 { return add(7, binary.BigEndian.AppendUint16(nil, utf8(s))...) }
	member := func(tag byte, of uint16, name, kind string) uint16 {
		return add(tag, two(of, add(12, two(utf8(name), utf8(kind))...))...)
	}
	const field, method = 9, 10
	this, object, url := class("Ask"), class("java/lang/Object"), class("java/net/URL")
	made := member(method, url, "<init>", "(Ljava/lang/String;)V")
	opened := member(method, url, "openStream", "()Ljava/io/InputStream;")
	out := member(field, class("java/lang/System"), "out", "Ljava/io/PrintStream;")
	copied := member(method, class("java/io/InputStream"), "transferTo", "(Ljava/io/OutputStream;)J")
	main, kind, code := utf8("main"), utf8("([Ljava/lang/String;)V"), utf8("Code")
	at := func(op byte, i uint16) []byte { return binary.BigEndian.AppendUint16([]byte{op}, i) }
	body := bytes.Join([][]byte{
		at(0xbb, url), {0x59, 0x2a, 0x03, 0x32}, at(0xb7, made), // new URL, dup, a[0], its constructor
		at(0xb6, opened), at(0xb2, out), at(0xb6, copied), {0x58, 0xb1}, // openStream, System.out, transferTo, pop2, return
	}, nil)
	attribute := binary.BigEndian.AppendUint32(two(4, 1), uint32(len(body))) // its stack and its variables
	attribute = append(append(attribute, body...), 0, 0, 0, 0)
	b := []byte{0xca, 0xfe, 0xba, 0xbe, 0, 0, 0, 52}
	b = append(binary.BigEndian.AppendUint16(b, n+1), pool...)
	for _, v := range []uint16{0x20, this, object, 0, 0, 1, 0x9, main, kind, 1, code} { // no interfaces, no fields, one method
		b = binary.BigEndian.AppendUint16(b, v)
	}
	b = append(binary.BigEndian.AppendUint32(b, uint32(len(attribute))), attribute...)
	return append(b, 0, 0)
}

// A container image trusts the router besides whom it trusts itself, in its own
// place and by the usual variables.
func TestImageTrust(t *testing.T) {
	onInternet(t, func(t *testing.T) {
		ca := plugIn(t)
		own, err := os.ReadFile("/etc/ssl/certs/ca-certificates.crt")
		if err != nil {
			t.Skip("needs /etc/ssl/certs/ca-certificates.crt")
		}
		first, _, _ := strings.Cut(string(own), "-----END CERTIFICATE-----\n")
		first += "-----END CERTIFICATE-----\n"
		const bundle = "etc/ssl/certs/ca-certificates.crt"
		layout := filepath.Join(t.TempDir(), "image")
		imagetest.New(t, imagetest.Config{Env: []string{"PATH=/usr/bin"}}, imagetest.Programs(t, "sh", "curl", "grep", "cat"), imagetest.Layer(t, bundle+"="+first)).Layout(layout)
		t.Setenv("API_KEY", apiKey)
		for _, level := range []string{"gvisor", "process"} {
			res, err := caisson.Run(t.Context(), caisson.Request{
				Image: "oci:" + layout, Isolation: level, Allow: []string{"good.example.com"}, UpstreamCA: ca,
				Secrets: []caisson.Secret{{Name: "KEY", From: "env:API_KEY", Hosts: []string{"good.example.com"}}},
				Command: all(map[string]string{
					"told":    "curl -sS -m 20 https://good.example.com/",
					"usual":   "unset CURL_CA_BUNDLE SSL_CERT_FILE; curl -sS -m 20 --cacert /" + bundle + " https://good.example.com/",
					"trusted": "cat $SSL_CERT_FILE | grep -c BEGIN; grep -c BEGIN /" + bundle,
				}),
			})
			if err != nil {
				t.Fatal(level, err)
			}
			got := outputs(t, res)
			if got["told"] != "good host" || got["usual"] != "good host" || got["trusted"] != "2\n2" {
				t.Errorf("%s: %q, %s", level, got, res.Stderr)
			}
		}
	})
}

// An ordinary user's caisson ends TLS as root's does.
func TestTerminatedAsNobody(t *testing.T) {
	if ca := os.Getenv("CAISSON_TEST_CA"); ca != "" {
		terminatedClients(t, ca)
		return
	}
	onInternet(t, func(t *testing.T) {
		ca := plugIn(t)
		for _, dir := range []string{filepath.Dir(ca), filepath.Dir(filepath.Dir(ca))} {
			if err := os.Chmod(dir, 0o755); err != nil {
				t.Fatal(err)
			}
		}
		cmd := exec.CommandContext(t.Context(), "/proc/self/exe", "-test.run=^"+t.Name()+"$", "-test.v")
		cmd.Dir = "/"
		cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "TMPDIR=/tmp", "HOME=/nonexistent", internet + "=here", "CAISSON_TEST_CA=" + ca}
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}, Pdeathsig: unix.SIGKILL}
		if out, err := cmd.CombinedOutput(); err != nil || !bytes.Contains(out, []byte("--- PASS: "+t.Name())) {
			t.Errorf("%v\n%s", err, out)
		}
	})
}
