// SPDX-License-Identifier: Apache-2.0

package roadtest

import (
	"bufio"
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson"
	"github.com/caisson-run/caisson/audit"
	"github.com/caisson-run/caisson/egress/wire"
	"github.com/caisson-run/caisson/sandbox"
)

// These tests have an internet of their own: two network namespaces with a cable
// between them. In one caisson runs; in the other are a good and an evil host
// with public addresses. Nothing leaves the machine, and nothing of it is left.

// internet is the variable that makes the test binary a part of it.
const internet = "CAISSON_TEST_INTERNET"

const (
	ourAddr  = "93.184.216.2"
	goodAddr = "93.184.216.34"
	evilAddr = "93.184.216.66"
)

// hosts are the names that this internet has.
var hosts = map[string]string{
	"localhost": "127.0.0.1", "good.example.com": goodAddr, "other.example.com": goodAddr, "evil.example.com": evilAddr,
	"private.example.com": "10.0.0.1", "metadata.example.com": "169.254.169.254", "loopback.example.com": "127.0.0.1", "own.example.com": ourAddr,
	"api.anthropic.com": goodAddr, "platform.claude.com": goodAddr, "api.openai.com": goodAddr,
}

// onInternet runs a test again in the namespace where caisson runs.
func onInternet(t *testing.T, test func(t *testing.T)) {
	if os.Getenv(internet) == "here" {
		test(t)
		return
	}
	if os.Geteuid() != 0 {
		t.Skip("needs root, which alone makes network namespaces")
	}
	cmd := exec.CommandContext(t.Context(), "/proc/self/exe", "-test.run=^"+t.Name()+"$", "-test.v", "-test.timeout=3m")
	cmd.Env = append(os.Environ(), internet+"=here")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNET | unix.CLONE_NEWNS, Pdeathsig: syscall.SIGKILL}
	runtime.LockOSThread() // the death signal comes when the thread ends
	defer runtime.UnlockOSThread()
	out, err := cmd.CombinedOutput()
	if err != nil || !bytes.Contains(out, []byte("--- PASS: "+t.Name())) {
		t.Fatalf("%v\n%s", err, out)
	}
}

func sh(t *testing.T, format string, args ...any) {
	t.Helper()
	if out, err := exec.Command("sh", "-ec", fmt.Sprintf(format, args...)).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
}

// plugIn lays the cable, starts the hosts at its other end, and returns the file
// with their certificate.
func plugIn(t *testing.T) (ca string) {
	t.Helper()
	dir := t.TempDir()
	list := ""
	for name, addr := range hosts {
		list += addr + " " + name + "\n"
	}
	if err := os.WriteFile(filepath.Join(dir, "hosts"), []byte(list), 0o644); err != nil {
		t.Fatal(err)
	}
	sh(t, "mount --make-rprivate / && mount --bind %s/hosts /etc/hosts && ip link set lo up", dir)
	cmd := exec.Command("/proc/self/exe", "-test.run=^TestInternet$") // it ends with its input, and cleans up
	cmd.Env = append(os.Environ(), internet+"=there")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNET}
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { in.Close(); _ = cmd.Wait() })
	sh(t, "ip link add here type veth peer name there netns %d && ip addr add %s/24 dev here && ip link set here up", cmd.Process.Pid, ourAddr)
	fmt.Fprintln(in, "plugged in")
	lines := bufio.NewScanner(out)
	for lines.Scan() && lines.Text() != "ready" {
		ca += lines.Text() + "\n"
	}
	file := filepath.Join(dir, "ca.pem")
	if err := os.WriteFile(file, []byte(ca), 0o644); err != nil {
		t.Fatal(err)
	}
	return file
}

// TestInternet is the hosts, when it is started as them; it ends with its input.
func TestInternet(t *testing.T) {
	if os.Getenv(internet) != "there" {
		t.Skip("other tests start it, as the hosts of their internet")
	}
	in := bufio.NewScanner(os.Stdin)
	in.Scan() // the cable is there
	repository(t)
	sh(t, "ip link set lo up && ip addr add %s/24 dev there && ip addr add %s/24 dev there && ip link set there up", goodAddr, evilAddr)
	cert, text := certificate(t)
	for _, addr := range []string{goodAddr, evilAddr} {
		name := map[string]string{goodAddr: "good", evilAddr: "evil"}[addr]
		serve(t, name, addr+":80", nil)
		serve(t, name, addr+":8080", nil)
		serve(t, name, addr+":443", &cert)
	}
	fmt.Printf("%sready\n", text)
	for in.Scan() {
	}
}

func serve(t *testing.T, name, addr string, cert *tls.Certificate) {
	t.Helper()
	l, err := net.Listen("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	if cert != nil {
		l = tls.NewListener(l, &tls.Config{Certificates: []tls.Certificate{*cert}, NextProtos: []string{"h2", "http/1.1"}})
	}
	go func() {
		_ = http.Serve(l, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/elsewhere" {
				http.Redirect(w, r, "http://evil.example.com/", http.StatusFound)
				return
			}
			if r.URL.Path == "/key" { // what a service should not do
				fmt.Fprintf(w, "%s %s\n%s", r.Proto, r.Header.Get("Authorization"), "X-Note: "+r.Header.Get("X-Note"))
				return
			}
			if servePackages(w, r) || serveModel(w, r) || serveLogin(w, r) {
				return
			}
			if rest, ok := strings.CutPrefix(r.URL.Path, "/repo/"); ok {
				if _, password, _ := r.BasicAuth(); password != apiKey {
					w.Header().Set("WWW-Authenticate", "Basic")
					w.WriteHeader(http.StatusUnauthorized)
					return
				}
				http.ServeFile(w, r, filepath.Join(os.Getenv("CAISSON_TEST_REPO"), rest))
				return
			}
			fmt.Fprintf(w, "%s host", name)
		}))
	}()
}

// repository makes what git can clone from files alone.
func repository(t *testing.T) {
	t.Helper()
	dir := t.TempDir()
	t.Setenv("CAISSON_TEST_REPO", dir+"/r.git")
	sh(t, "cd %s && git init -q w && cd w && echo hello from git > hello && git add hello && "+
		"git -c user.name=a -c user.email=a@example.com commit -q -m a && git clone -q --bare . ../r.git && cd ../r.git && git update-server-info", dir)
}

// certificate is one for every name there is, and the text of its authority's.
func certificate(t *testing.T) (tls.Certificate, string) {
	t.Helper()
	make := func(c, by *x509.Certificate, signer *ecdsa.PrivateKey) ([]byte, *ecdsa.PrivateKey) {
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		if signer == nil {
			signer = key
		}
		c.NotBefore, c.NotAfter, c.BasicConstraintsValid = time.Now().Add(-time.Hour), time.Now().Add(time.Hour), true
		der, err := x509.CreateCertificate(rand.Reader, c, by, key.Public(), signer)
		if err != nil {
			t.Fatal(err)
		}
		return der, key
	}
	authority := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "caisson test authority"}, IsCA: true, KeyUsage: x509.KeyUsageCertSign}
	root, signer := make(authority, authority, nil)
	leaf, key := make(&x509.Certificate{SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: "caisson test"}, DNSNames: []string{"*.example.com", "api.anthropic.com", "platform.claude.com", "api.openai.com"},
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}, authority, signer)
	return tls.Certificate{Certificate: [][]byte{leaf}, PrivateKey: key}, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: root}))
}

// The matrix of what a program reaches, with a real client and the real road.
func TestNetworkRoad(t *testing.T) {
	for _, level := range []string{"gvisor", "process"} {
		t.Run(level, func(t *testing.T) { onInternet(t, func(t *testing.T) { networkRoad(t, level) }) })
	}
}

func networkRoad(t *testing.T, level string) {
	ca := plugIn(t)
	const good, nothing, refused = "good host", "", "egress_denied"
	for name, c := range map[string]struct {
		allow []string
		curl  string
		want  string // a part of the output
	}{
		"no network":               {nil, "http://good.example.com/", nothing},
		"allowed":                  {[]string{"good.example.com"}, "http://good.example.com/", good},
		"allowed, TLS":             {[]string{"good.example.com"}, "https://good.example.com/", good},
		"a wildcard":               {[]string{"*.example.com:443"}, "https://other.example.com/", good},
		"a wildcard's other port":  {[]string{"*.example.com:443"}, "http://other.example.com/", nothing},
		"another spelling":         {[]string{"good.example.com"}, "http://GOOD.Example.com./", good},
		"another name":             {[]string{"good.example.com"}, "http://evil.example.com/", nothing},
		"its address":              {[]string{"good.example.com"}, "http://" + goodAddr + "/", nothing},
		"an address that is named": {[]string{goodAddr + ":80"}, "http://" + goodAddr + "/", good},
		"a range that is named":    {[]string{"93.184.216.0/24"}, "http://" + goodAddr + "/", good},
		"a redirect elsewhere":     {[]string{"good.example.com"}, "-L http://good.example.com/elsewhere", nothing},
		"another Host":             {[]string{"good.example.com"}, "-H Host:evil.example.com http://good.example.com/", refused},
		"another Host, other port": {[]string{"good.example.com:*"}, "-H Host:evil.example.com http://good.example.com:8080/", refused},
		"another SNI":              {[]string{"good.example.com"}, "--connect-to evil.example.com:443:good.example.com:443 https://evil.example.com/", nothing},
		"a tunnel":                 {[]string{"good.example.com"}, "-p -x http://good.example.com:80 http://evil.example.com/", nothing},
		"the internet":             {[]string{"internet"}, "http://good.example.com:8080/", good},
		"the internet by number":   {[]string{"internet"}, "http://" + goodAddr + "/", good},
		"a private address":        {[]string{"internet"}, "http://private.example.com/", nothing},
		"credentials":              {[]string{"internet"}, "http://metadata.example.com/", nothing},
		"this host's loopback":     {[]string{"internet"}, "http://loopback.example.com:9999/", nothing},
		"this host":                {[]string{"internet"}, "http://own.example.com:9999/", nothing},
	} {
		t.Run(name, func(t *testing.T) {
			if strings.Contains(c.curl, ":9999") {
				serveHere(t)
			}
			res, err := caisson.Run(t.Context(), caisson.Request{
				Command:   append([]string{"curl", "-sS", "-m", "10", "--cacert", "ca.pem"}, strings.Fields(c.curl)...),
				Isolation: level, Allow: c.allow, Mounts: []caisson.Mount{{Source: ca}},
			})
			if err != nil {
				t.Fatal(err)
			}
			if got := string(res.Stdout); c.want == nothing && got != "" || !strings.Contains(got, c.want) {
				t.Errorf("%q, %s; want %q", got, res.Stderr, c.want)
			}
			checkUse(t, res, c.allow, c.want == good)
		})
	}
}

// checkUse wants in the result what happened.
func checkUse(t *testing.T, res *caisson.Result, allow []string, reached bool) {
	t.Helper()
	if allow == nil {
		if res.Network != nil || res.Posture.Network != "none" {
			t.Errorf("without a network there is %+v, posture %s", res.Network, res.Posture.Network)
		}
		return
	}
	n := res.Network
	switch {
	case n == nil || res.Posture.Network != "allow-list" || n.Incomplete:
		t.Errorf("%+v, posture %s", n, res.Posture.Network)
	case reached && (len(n.Connections) != 1 || n.Connections[0].Sent == 0 || n.Connections[0].From != "--allow"):
		t.Errorf("the connections are %+v", n.Connections)
	case !reached && n.Denied == 0 && len(n.Refused) == 0 && n.Connected == 0:
		t.Errorf("no attempt is recorded: %+v", n)
	}
}

// serveHere is a service of the host that caisson runs on.
func serveHere(t *testing.T) {
	t.Helper()
	l, err := net.Listen("tcp", "0.0.0.0:9999")
	if err != nil {
		t.Fatal(err)
	}
	s := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "this host") })}
	go func() { _ = s.Serve(l) }()
	t.Cleanup(func() { s.Close() })
}

// A budget that is used up ends the run and names the network.
func TestNetworkBudget(t *testing.T) {
	onInternet(t, func(t *testing.T) {
		plugIn(t)
		file := filepath.Join(t.TempDir(), "policy.yaml")
		if err := os.WriteFile(file, []byte("version: 1\nnetwork: {allow: [good.example.com], budget: {connections: 1}}\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		c, err := caisson.Open(t.Context(), caisson.Options{Policy: file})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		res, err := c.Run(ctx, caisson.Request{Command: []string{"sh", "-c", "while :; do curl -sS http://good.example.com/; done"}})
		if err != nil {
			t.Fatal(err)
		}
		if res.Status != sandbox.StatusResourceExceeded || res.Resource != sandbox.LimitNetwork || !strings.Contains(res.Reason, "connections") {
			t.Errorf("%+v", res)
		}
		// One that fails by itself, because of that, and is quicker than the kill.
		res, err = c.Run(ctx, caisson.Request{Command: []string{"sh", "-c", "curl -sS http://good.example.com/; exec curl -sS http://good.example.com/"}})
		if err != nil {
			t.Fatal(err)
		}
		if res.Status != sandbox.StatusResourceExceeded || res.Resource != sandbox.LimitNetwork {
			t.Errorf("%+v", res)
		}
	})
}

// The router's death is the end of the run: the network is closed, and is not
// waited for.
func TestNetworkRouterDies(t *testing.T) {
	type end struct {
		res *caisson.Result
		err error
	}
	ended := make(chan end, 1)
	go func() {
		res, err := caisson.Run(t.Context(), caisson.Request{
			Command: []string{"sh", "-c", "getent ahostsv4 good.example.com; echo running; sleep 60"}, Allow: []string{"good.example.com"},
			Stdout: killRouter{t}, Limits: caisson.Limits{Wall: time.Minute},
		})
		ended <- end{res, err}
	}()
	e := <-ended
	if e.err != nil {
		t.Fatal(e.err)
	}
	if e.res.Status != sandbox.StatusError || !strings.Contains(e.res.Reason, "router") || e.res.WallMS > 30_000 || !e.res.Network.Incomplete {
		t.Errorf("%+v, network %+v", e.res, e.res.Network)
	}
}

// killRouter kills this process's router when the program says that it runs. What it
// wrote before may come by itself.
type killRouter struct{ t *testing.T }

func (k killRouter) Write(b []byte) (int, error) {
	if !bytes.Contains(b, []byte("running")) {
		return len(b), nil
	}
	children, err := filepath.Glob("/proc/self/task/*/children")
	if err != nil {
		return 0, err
	}
	killed := 0
	for _, file := range children {
		pids, _ := os.ReadFile(file) // a thread may have ended
		for _, pid := range strings.Fields(string(pids)) {
			cmdline, _ := os.ReadFile("/proc/" + pid + "/cmdline")
			if n, err := strconv.Atoi(pid); err == nil && strings.TrimRight(string(cmdline), "\x00") == wire.Argv0 {
				killed++
				_ = syscall.Kill(n, syscall.SIGKILL)
			}
		}
	}
	if killed != 1 {
		k.t.Errorf("%d routers were killed", killed)
	}
	return len(b), nil
}

// Every connection and every refused attempt is a record of its own in the audit
// log, with the call that it belongs to.
func TestNetworkRecords(t *testing.T) {
	onInternet(t, func(t *testing.T) {
		plugIn(t)
		state := filepath.Join(t.TempDir(), "state")
		c, err := caisson.Open(t.Context(), caisson.Options{State: state})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		script := "curl -sS http://good.example.com/; for i in 1 2 3; do curl -sS http://evil.example.com/; done; curl -sS http://" + evilAddr + ":8080/; " +
			"curl -sS http://good.example.com:8080/ -H Host:evil.example.com"
		res, err := c.Run(t.Context(), caisson.Request{Command: []string{"sh", "-c", script}, Isolation: "process", Allow: []string{"good.example.com:*"}})
		if err != nil {
			t.Fatal(err)
		}
		log, err := audit.Open(t.Context(), audit.Options{Dir: state, ReadOnly: true})
		if err != nil {
			t.Fatal(err)
		}
		defer log.Close()
		var got []string
		call := ""
		for r, err := range log.Query(t.Context(), audit.Filter{OldestFirst: true}) {
			switch {
			case err != nil:
				t.Fatal(err)
			case r.Call.Kind != audit.KindConnection:
				call = r.ID
				if n := r.Ending.Result.Network; n.Connected != 2 || n.Denied < 5 || n.Unrecorded != 0 || len(n.Connections) != 0 {
					t.Errorf("of the call: %+v", n)
				}
				continue
			case r.Call.Of != call || r.Call.Sandbox == "":
				t.Errorf("%+v is nobody's", r.Call)
			}
			n := r.Call.Connection
			if r.Status == audit.Allowed && n.Port == 80 && (n.Sent == 0 || n.Received == 0 || n.Address != goodAddr || n.Rule != "good.example.com:*" || n.From != "--allow") {
				t.Errorf("%+v", n)
			}
			got = append(got, fmt.Sprintf("%s %s %s%s:%d x%d", r.Status, n.Protocol, n.Host, map[bool]string{true: n.Address}[n.Host == ""], n.Port, n.Count))
		}
		slices.Sort(got)
		if n := len(res.Network.Refused); n != 3 {
			t.Errorf("the result lists %d refusals: %+v", n, res.Network.Refused)
		}
		// libc asks for two kinds of addresses each time, which is one sort.
		want := []string{
			"allowed tcp good.example.com:80 x0", "allowed tcp good.example.com:8080 x0",
			"refused dns evil.example.com:0 x0", "refused dns evil.example.com:0 x6",
			"refused tcp " + evilAddr + ":8080 x0", "refused tcp good.example.com:8080 x0",
		}
		if !slices.Equal(got, want) {
			t.Errorf("recorded: %q\nwant %q", got, want)
		}
	})
}
