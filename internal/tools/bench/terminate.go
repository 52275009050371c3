// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
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
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"
)

// tlsClient makes a connection for each of 50 requests, or one for 200, and
// prints the median in ms. Whom it trusts stands in its last argument, or where that
// is missing in the usual variable.
const tlsClient = `
import os, socket, ssl, struct, sys, time
what, port, inside = sys.argv[1], int(sys.argv[2]), sys.argv[3] == 'inside'
host = '127.0.0.1'
if inside:
    q = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); q.settimeout(10)
    q.sendto(struct.pack('>6H', 7, 0x100, 1, 0, 0, 0) + b'\x09localhost\0' + struct.pack('>2H', 1, 1), ('198.18.0.1', 53))
    host = socket.inet_ntoa(q.recv(500)[-4:])
context = ssl.create_default_context(cafile=sys.argv[4] if len(sys.argv) > 4 else os.environ['SSL_CERT_FILE'])
def dial():
    c = socket.create_connection((host, port), 10)
    c.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return context.wrap_socket(c, server_hostname='localhost')
def ask(c):
    c.sendall(b'GET / HTTP/1.1\r\nHost: localhost:%d\r\n\r\n' % port)
    b = b''
    while not b.endswith(b'hello'): b += c.recv(65536)
def whole():
    with dial() as c: ask(c)
def median(f, n):
    took = []
    for _ in range(n):
        began = time.perf_counter(); f(); took.append(time.perf_counter() - began)
    return sorted(took)[n // 2] * 1e3
whole()
if what == 'connection': print(median(whole, 50))
else:
    c = dial()
    print(median(lambda: ask(c), 200))
`

// terminated measures a request whose TLS the router ends, beside a direct one from
// outside: with what the level costs a client of TLS, which has all of its handshake
// inside, and what the router does.
func (s *stage) terminated(level, what string) bench {
	return s.tlsRow(level, what, "a direct one", "≤ 3 ms over direct", func(ctx context.Context, _ user, port, authority string) *exec.Cmd {
		return exec.CommandContext(ctx, "/usr/bin/python3", "-I", "-S", "-c", tlsClient, what, port, "outside", authority)
	})
}

// ended measures it beside one whose TLS goes through the router whole, from a sandbox
// of the same kind: what ending it costs.
func (s *stage) ended(level, what string) bench {
	return s.tlsRow(level, what, "one whose TLS goes through it", "≤ 3 ms over that", func(ctx context.Context, u user, port, authority string) *exec.Cmd {
		return s.caisson(ctx, u, "run", "--isolation", level, "--allow", "localhost:"+port, "--allow", "127.0.0.1:"+port,
			"--mount", authority+":/authority.pem", "--", "/usr/bin/python3", "-I", "-S", "-c", tlsClient, what, port, "inside", "/authority.pem")
	})
}

// tlsRow measures a request whose TLS the router ends beside another.
func (s *stage) tlsRow(level, what, beside, goal string, other func(ctx context.Context, u user, port, authority string) *exec.Cmd) bench {
	return bench{fmt.Sprintf("request with TLS ended by the router, %s, %s level, beside %s", what, level, beside), func(ctx context.Context) row {
		u := s.users[0]
		r := row{who: u.name, goal: goal, runs: fmt.Sprint(s.o.rounds)}
		port, authority, stop, err := s.secure()
		if err != nil {
			r.notes = append(r.notes, err.Error())
			return r
		}
		defer stop()
		policy := s.path("tls-" + level + ".yaml")
		text := fmt.Sprintf("version: 1\nisolation: %s\nnetwork: {upstream_ca: %s, allow: [{host: \"localhost:%s\", methods: [GET]}, \"127.0.0.1:%s\"]}\n", level, authority, port, port)
		if err := os.WriteFile(policy, []byte(text), 0o644); err != nil {
			r.notes = append(r.notes, err.Error())
			return r
		}
		var ours, theirs []float64
		for range s.o.rounds {
			a, err := figure(s.caisson(ctx, u, "run", "--policy", policy, "--", "/usr/bin/python3", "-I", "-S", "-c", tlsClient, what, port, "inside"))
			if err == nil {
				var b float64
				b, err = figure(other(ctx, u, port, authority))
				theirs = append(theirs, b)
			}
			if err != nil {
				r.notes = append(r.notes, err.Error())
				return r
			}
			ours = append(ours, a)
		}
		r.ours, r.theirs = fmt.Sprintf("%.3g ms", median(ours)), fmt.Sprintf("%.3g ms", median(theirs))
		return r
	}}
}

// figure is the number that a command prints.
func figure(cmd *exec.Cmd) (float64, error) {
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return 0, failure(cmd, err, stderr.String())
	}
	return strconv.ParseFloat(strings.TrimSpace(string(out)), 64)
}

// secure is an HTTPS server for localhost on this machine, and a file with the
// certificate that it goes by.
func (s *stage) secure() (port, authority string, stop func(), err error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return "", "", nil, err
	}
	about := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "bench"}, DNSNames: []string{"localhost"}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, about, about, key.Public(), key)
	if err != nil {
		return "", "", nil, err
	}
	authority = s.path("bench-authority.pem")
	if err := os.WriteFile(authority, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o644); err != nil {
		return "", "", nil, err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", "", nil, err
	}
	server := &http.Server{
		Handler:     http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "hello") }),
		ReadTimeout: time.Minute,
		TLSConfig:   &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}, NextProtos: []string{"http/1.1"}},
	}
	go server.ServeTLS(l, "", "")
	_, port, err = net.SplitHostPort(l.Addr().String())
	return port, authority, func() { server.Close() }, err
}
