// SPDX-License-Identifier: Apache-2.0

package router

import (
	"bytes"
	"crypto/tls"
	"io"
	"net"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"
)

// overheard is a connection that keeps what came.
type overheard struct {
	net.Conn
	mu  *sync.Mutex
	all *bytes.Buffer
}

func (o overheard) Read(b []byte) (int, error) {
	n, err := o.Conn.Read(b)
	o.mu.Lock()
	defer o.mu.Unlock()
	o.all.Write(b[:n])
	return n, err
}

// forger puts another name of the same length into what it writes from the second time
// on that the first stands there.
type forger struct {
	net.Conn
	times int
}

func (f *forger) Write(b []byte) (int, error) {
	if bytes.Contains(b, []byte("good.test")) {
		if f.times++; f.times > 1 {
			b = bytes.ReplaceAll(b, []byte("good.test"), []byte("evil.test"))
		}
	}
	return f.Conn.Write(b)
}

// A server that asks for a second ClientHello is told the same name, or nothing. OpenSSL
// serves whom the second one names.
func TestSecondHello(t *testing.T) {
	cert := httptest.NewUnstartedServer(nil)
	cert.StartTLS()
	t.Cleanup(cert.Close)
	var mu sync.Mutex
	var heard bytes.Buffer
	port := raw(t, func(c net.Conn) {
		inner := tls.Server(overheard{c, &mu, &heard}, &tls.Config{Certificates: cert.TLS.Certificates, CurvePreferences: []tls.CurveID{tls.CurveP384}})
		_, _ = io.Copy(inner, onlyReader{inner})
		_ = inner.CloseWrite()
	})
	for name, c := range map[string]struct {
		first   tls.CurveID // what the client has a key for at once
		maximum uint16
		forge   bool
	}{
		"asked for":               {tls.X25519, tls.VersionTLS13, false},
		"not asked for":           {tls.CurveP384, tls.VersionTLS13, false},
		"of TLS 1.2":              {tls.X25519, tls.VersionTLS12, false},
		"that names another host": {tls.X25519, tls.VersionTLS13, true},
	} {
		t.Run(name, func(t *testing.T) {
			h := build(t, options{allow: []string{"good.test:*", "127.0.0.1:*"}, hosts: map[string]string{"good.test": "127.0.0.1"}})
			conn, err := h.guest.DialName("good.test", port)
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			_ = conn.SetDeadline(time.Now().Add(2 * time.Minute))
			if c.forge {
				conn = &forger{Conn: conn}
			}
			curves := []tls.CurveID{c.first, tls.CurveP384}
			client := tls.Client(conn, &tls.Config{ServerName: "good.test", InsecureSkipVerify: true, CurvePreferences: curves, MaxVersion: c.maximum})
			err = client.Handshake()
			if c.forge {
				if err == nil || isTimeout(err) {
					t.Errorf("%v: it was not broken off", err)
				}
				mu.Lock()
				defer mu.Unlock()
				if strings.Contains(heard.String(), "evil.test") {
					t.Fatal("the server was told another name")
				}
				h.refused("evil.test instead")
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if _, err := io.WriteString(client, "hello"); err != nil {
				t.Fatal(err)
			}
			_ = client.CloseWrite()
			if b, err := io.ReadAll(client); string(b) != "hello" || err != nil {
				t.Errorf("%q, %v", b, err)
			}
			if again := client.ConnectionState(); c.first == tls.X25519 && c.maximum == tls.VersionTLS13 && !again.HelloRetryRequest {
				t.Error("the server did not ask again")
			}
		})
	}
}
