// SPDX-License-Identifier: Apache-2.0

package ca

import (
	"bytes"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/caisson-run/caisson/egress/rule"
	"github.com/caisson-run/caisson/egress/wire"
	"github.com/caisson-run/caisson/sandbox"
)

func host(t testing.TB, s string) rule.Name {
	t.Helper()
	n, err := rule.ParseName(s)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func minter(t testing.TB, a *Authority, hosts ...string) *Minter {
	t.Helper()
	var names []rule.Name
	for _, s := range hosts {
		names = append(names, host(t, s))
	}
	i, err := a.Delegate(names, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	m, err := NewMinter(i)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// verify asks as a client of a sandbox does.
func verify(a *Authority, m *Minter, certified, asked rule.Name) error {
	c, err := m.Leaf(certified)
	if err != nil {
		return err
	}
	roots, between := x509.NewCertPool(), x509.NewCertPool()
	roots.AppendCertsFromPEM(a.PEM())
	for _, der := range c.Certificate[1:] {
		chain, err := x509.ParseCertificate(der)
		if err != nil {
			return err
		}
		between.AddCert(chain)
	}
	_, err = c.Leaf.Verify(x509.VerifyOptions{DNSName: asked.String(), Roots: roots, Intermediates: between})
	return err
}

// The matrix of what an issuer can certify.
func TestDelegate(t *testing.T) {
	a, err := New(time.Now())
	if err != nil {
		t.Fatal(err)
	}
	other, err := New(time.Now())
	if err != nil {
		t.Fatal(err)
	}
	m := minter(t, a, "api.example.com", "example.net")
	for _, c := range []struct {
		certified, asked string
		trusts           *Authority
		ok               bool
	}{
		{"api.example.com", "api.example.com", a, true},
		{"a.example.net", "a.example.net", a, true}, // *.example.net
		{"api.example.com", "evil.example.com", a, false},
		{"evil.example.com", "evil.example.com", a, false}, // the issuer may not
		{"example.com", "example.com", a, false},
		{"bank.test", "bank.test", a, false},
		{"api.example.com", "api.example.com", other, false},
	} {
		err := verify(c.trusts, m, host(t, c.certified), host(t, c.asked))
		if (err == nil) != c.ok {
			t.Errorf("a certificate of %s for %s: %v", c.certified, c.asked, err)
		}
	}
	for _, hosts := range [][]rule.Name{nil, {{}}, many(t, wire.MaxHosts+1)} {
		if _, err := a.Delegate(hosts, time.Now()); err == nil {
			t.Errorf("an issuer for %d hosts", len(hosts))
		}
	}
	if i, _ := a.Delegate(many(t, 1), time.Now()); strings.Contains(fmt.Sprintf("%v %+v %#v", i, i, i), "48") {
		t.Errorf("the issuer shows its key: %#v", i)
	}
}

func many(t *testing.T, n int) (names []rule.Name) {
	for i := range n {
		names = append(names, host(t, fmt.Sprintf("h%d.example.com", i)))
	}
	return names
}

// Certificates are made once, again before they end, and not kept without end.
func TestLeaves(t *testing.T) {
	a, err := New(time.Now())
	if err != nil {
		t.Fatal(err)
	}
	m := minter(t, a, "example.com")
	now := time.Now()
	m.now = func() time.Time { return now }
	leaf := func(s string) *x509.Certificate {
		c, err := m.Leaf(host(t, s))
		if err != nil {
			t.Fatal(err)
		}
		return c.Leaf
	}
	first := leaf("a.example.com")
	if leaf("a.example.com") != first {
		t.Error("it was made twice")
	}
	if d := first.NotAfter.Sub(now); d > leafLife {
		t.Errorf("it lives %v", d)
	}
	now = first.NotAfter.Add(-leafReserve + time.Second)
	if leaf("a.example.com") == first {
		t.Error("it is used until it ends")
	}
	for i := range 3 * maxLeaves {
		leaf(fmt.Sprintf("h%d.example.com", i))
	}
	if n := len(m.leaves); n > maxLeaves {
		t.Errorf("%d are kept", n)
	}
}

// The file of an installation: made once, by one of many, 0600, renewed in time.
func TestOpen(t *testing.T) {
	dir, now := t.TempDir(), time.Now()
	var wg sync.WaitGroup
	got := make([]*Authority, 8)
	for i := range got {
		wg.Go(func() {
			var err error
			if got[i], err = Open(dir, now); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	for _, a := range got {
		if a == nil || !bytes.Equal(a.PEM(), got[0].PEM()) {
			t.Fatal("they have not the same authority")
		}
	}
	path := filepath.Join(dir, fileName)
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
	if left, _ := os.ReadDir(dir); len(left) != 1 {
		t.Errorf("%v is left", left)
	}
	later := now.Add(life - reserve + time.Hour)
	renewed, err := Open(dir, later)
	if err != nil || bytes.Equal(renewed.PEM(), got[0].PEM()) {
		t.Errorf("it is not renewed: %v", err)
	}
	if again, err := Open(dir, later); err != nil || !bytes.Equal(again.PEM(), renewed.PEM()) {
		t.Errorf("it is renewed twice: %v", err)
	}
}

// The matrix of files that are refused.
func TestOpenRefuses(t *testing.T) {
	a, err := New(time.Now())
	if err != nil {
		t.Fatal(err)
	}
	b, err := New(time.Now())
	if err != nil {
		t.Fatal(err)
	}
	whole, err := a.encode()
	if err != nil {
		t.Fatal(err)
	}
	first, _ := pem.Decode(whole)
	for what, c := range map[string]struct {
		text []byte
		mode os.FileMode
	}{
		"readable by others":  {whole, 0o644},
		"nothing":             {nil, 0o600},
		"half of it":          {whole[:len(whole)/2], 0o600},
		"more":                {append(bytes.Clone(whole), "more"...), 0o600},
		"another certificate": {append(pem.EncodeToMemory(first), b.PEM()...), 0o600},
	} {
		dir := t.TempDir()
		path := filepath.Join(dir, fileName)
		if err := os.WriteFile(path, c.text, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, c.mode); err != nil {
			t.Fatal(err)
		}
		if _, err := Open(dir, time.Now()); !errors.Is(err, sandbox.ErrUnavailable) || !strings.Contains(sandbox.Hint(err), "remove") {
			t.Errorf("%s: %v", what, err)
		}
	}
	dir := t.TempDir()
	elsewhere := filepath.Join(t.TempDir(), "elsewhere")
	if err := os.WriteFile(elsewhere, whole, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(elsewhere, filepath.Join(dir, fileName)); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(dir, time.Now()); err == nil {
		t.Error("a link is followed")
	}
}

// TestHostRoots: what $SSL_CERT_FILE names is not waited for.
func TestHostRoots(t *testing.T) {
	fifo := filepath.Join(t.TempDir(), "fifo")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{fifo, "/dev/zero"} {
		t.Setenv("SSL_CERT_FILE", name)
		if _, err := HostRoots(); !errors.Is(err, sandbox.ErrUnavailable) || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestJava(t *testing.T) {
	a, err := New(time.Now())
	if err != nil {
		t.Fatal(err)
	}
	store, err := Java(append(a.PEM(), a.PEM()...))
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.HasPrefix(store, []byte{0xfe, 0xed, 0xfe, 0xed, 0, 0, 0, 2, 0, 0, 0, 2}) {
		t.Errorf("it begins with %x", store[:12])
	}
	if _, err := Java([]byte("nothing")); err == nil {
		t.Error("nothing is a store")
	}
	keytool, err := exec.LookPath("keytool")
	if err != nil {
		return // what it says is looked at where there is a Java
	}
	path := filepath.Join(t.TempDir(), "trust.jks")
	if err := os.WriteFile(path, store, 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command(keytool, "-list", "-keystore", path, "-storepass", JavaPassword).CombinedOutput()
	if err != nil || !bytes.Contains(out, []byte("2 entries")) {
		t.Errorf("%v\n%s", err, out)
	}
}

// FuzzDecode holds that whatever a file says, what is read of it can sign.
func FuzzDecode(f *testing.F) {
	a, err := New(time.Now())
	if err != nil {
		f.Fatal(err)
	}
	whole, err := a.encode()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(whole)
	f.Add(whole[:len(whole)-40])
	f.Fuzz(func(t *testing.T, b []byte) {
		a, err := decode(b)
		if err != nil {
			return
		}
		_ = a.stale(time.Now())
		if len(a.PEM()) == 0 {
			t.Error("it has no certificate")
		}
	})
}
