// SPDX-License-Identifier: Apache-2.0

package router

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"io"
	"net"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
)

// recorded is the ClientHello that crypto/tls writes.
func recorded(t testing.TB, c *tls.Config) []byte {
	t.Helper()
	client, server := net.Pipe()
	go func() {
		_ = tls.Client(client, c).Handshake()
		client.Close()
	}()
	defer server.Close()
	head := make([]byte, 5)
	if _, err := io.ReadFull(server, head); err != nil {
		t.Fatal(err)
	}
	body := make([]byte, int(head[3])<<8|int(head[4]))
	if _, err := io.ReadFull(server, body); err != nil {
		t.Fatal(err)
	}
	return append(head, body...)
}

func peeked(b []byte) (Kind, Hello, error) {
	return Peek(bufio.NewReaderSize(iotest.OneByteReader(bytes.NewReader(b)), BufferSize))
}

// split spreads the one record of b over records of n bytes.
func split(b []byte, n int) []byte {
	var out []byte
	for part := range slices.Chunk(b[5:], n) {
		out = append(append(out, b[0], b[1], b[2], byte(len(part)>>8), byte(len(part))), part...)
	}
	return out
}

func TestClientHello(t *testing.T) {
	for _, server := range []string{"good.test", "GOOD.test", "xn--bcher-kva.test", ""} {
		b := recorded(t, &tls.Config{ServerName: server, InsecureSkipVerify: true})
		for _, in := range [][]byte{b, append(slices.Clone(b), "early data"...), split(b, 7), split(b, 100)} {
			kind, h, err := peeked(in)
			if kind != TLS || err != nil || h.Server.String() != strings.ToLower(server) || h.Encrypted {
				t.Errorf("%q: kind %d, %+v, %v", server, kind, h, err)
			}
		}
	}
}

// extensions makes a ClientHello with these extensions and nothing else.
func extensions(ext ...[]byte) []byte {
	body := append([]byte{3, 3}, make([]byte, 32)...)
	body = append(body, 0, 0, 2, 0x13, 1, 1, 0)
	all := bytes.Join(ext, nil)
	body = append(append(body, byte(len(all)>>8), byte(len(all))), all...)
	message := append([]byte{1, 0, byte(len(body) >> 8), byte(len(body))}, body...)
	return append([]byte{22, 3, 1, byte(len(message) >> 8), byte(len(message))}, message...)
}

func extension(kind uint16, body string) []byte {
	return append([]byte{byte(kind >> 8), byte(kind), byte(len(body) >> 8), byte(len(body))}, body...)
}

func sni(host string) []byte {
	entry := "\x00" + string([]byte{byte(len(host) >> 8), byte(len(host))}) + host
	return extension(extServerName, string([]byte{byte(len(entry) >> 8), byte(len(entry))})+entry)
}

func TestOddHellos(t *testing.T) {
	good := sni("good.test")
	if _, h, err := peeked(extensions(good)); err != nil || h.Server.String() != "good.test" {
		t.Fatalf("%+v, %v", h, err)
	}
	if _, h, err := peeked(extensions(good, extension(extEncrypted, "x"))); err != nil || !h.Encrypted {
		t.Errorf("an encrypted ClientHello is not seen: %+v, %v", h, err)
	}
	whole := extensions(good)
	cut := slices.Clone(whole)
	cut[4] -= 3 // the record ends early, another follows
	trailing := append(slices.Clone(whole), 0)
	trailing[4]++ // one byte more in the record than the message has
	long := []byte{22, 3, 1, 0, 4, 1, 0xff, 0xff, 0xff}
	two := "\x00\x18\x00\x00\x09good.test\x00\x00\x09evil.test"
	for what, b := range map[string][]byte{
		"the name twice":           extensions(good, sni("evil.test")),
		"two names in one":         extensions(extension(extServerName, two)),
		"no name in the extension": extensions(extension(extServerName, "\x00\x00")),
		"another kind of name":     extensions(extension(extServerName, "\x00\x0c\x01\x00\x09good.test")),
		"an odd name":              extensions(sni("evil.test\x00.good.test")),
		"a name in other letters":  extensions(sni("ｇood.test")),
		"an address":               extensions(sni("127.0.0.1")),
		"a broken length":          extensions(extension(extServerName, "\xff\xff\x00")),
		"a record cut short":       cut,
		"trailing bytes":           trailing,
		"an announced 16 MiB":      long,
		"an empty record":          {22, 3, 1, 0, 0},
		"another record":           append([]byte{22, 3, 1, 0, 1, 1}, 23, 3, 3, 0, 1, 0),
		"another message":          {22, 3, 1, 0, 4, 2, 0, 0, 0},
		"no end":                   whole[:20],
		"a warning first":          append(record(recordAlert, 1, 90), whole...),
		"a change of cipher first": append(record(recordChangeCipher, 1), whole...),
		"a heartbeat first":        append(record(recordHeartbeat, 1, 0, 0), whole...),
		"data first":               append(record(recordData, 1), whole...),
		"the form of SSL 2":        []byte("\x80\x2e\x01\x03\x03\x00\x15\x00\x00\x00\x10"),
	} {
		if kind, h, err := peeked(b); kind != TLS || err == nil {
			t.Errorf("%s: kind %d, %+v, no error", what, kind, h)
		}
	}
}

func TestRequestLines(t *testing.T) {
	for in, want := range map[string]Kind{
		"GET / HTTP/1.1\r\n": HTTP, "\r\n\r\nGET / HTTP/1.1": HTTP, "POST\thttp://x/ HTTP/1.1\n": HTTP, "get / http/1.1\r\n": HTTP, "PRI * HTTP/2.0\r\n": HTTP,
		" GET / HTTP/1.0\n": HTTP, strings.Repeat("A", 9000) + " /": HTTP, "GET /" + strings.Repeat("a", 9000): HTTP, "GET / \rHTTP/1.1": HTTP,
		"EHLO mail.test\r\n": Opaque, "set key 0 0 5\r\n": Opaque, "GET /\r\nHost: evil.test\r\n": Opaque,
		"M-SEARCH * HTTP/1.1": HTTP, "CONNECT evil.test:443 HTTP/1.1": HTTP,
		"SSH-2.0-OpenSSH_9.2\r\n": Opaque, "PING\r\n": Opaque, "\x00\x00\x00\x08\x04\xd2\x16/": Opaque, "*1\r\n$4\r\nPING\r\n": Opaque,
		"GET\v/\vHTTP/1.1\r\n": HTTP, "GET\x1c/\xa0HTTP/1.1\n": HTTP, "\xa0GET / HTTP/1.1\n": HTTP, "\fGET\r/\rHTTP/1.1\n": HTTP,
		"0\x0c\x02\x01\x01`\x07\x02\x01\x03\x04\x00\x80\x00": Opaque, "\x18\x03\x05\x03\x00": Opaque, "\x18\x03\x05\x00\x01": Opaque, "\x17\x01": Opaque,
		"PROXY": Opaque, "proxy tcp4\r\n": Opaque, "\r\n\r\nQUIT\n": Opaque, "GET\v/\n": Opaque,
		"GET": Opaque, "\x05\x01\x00": Opaque, "\x80\x2e\x01\x00\x02": Opaque, "\x80\x2e\x01": Opaque, "\xff\xff\x00": Opaque,
	} {
		if kind, _, err := peeked([]byte(in)); kind != want || err != nil {
			t.Errorf("%q is %d, %v; want %d", in, kind, err, want)
		}
	}
	if _, _, err := peeked(nil); err != io.EOF {
		t.Errorf("nothing at all: %v", err)
	}
}

// What a server may take for the beginning of a connection that begins anew.
func TestProxyHeaders(t *testing.T) {
	for _, in := range []string{"PROXY TCP4 10.0.0.1 10.0.0.2 1 443\r\n", "PROXY UNKNOWN\r\n", "\r\n\r\n\x00\r\nQUIT\n\x21\x11"} {
		if kind, _, err := peeked([]byte(in)); kind != Opaque || err != errProxy {
			t.Errorf("%q: %d, %v", in, kind, err)
		}
	}
}

func TestGuard(t *testing.T) {
	for in, passes := range map[string]bool{
		"hello": true, "hello\nGET / HTTP/1.1\r\n": true, "PING": true, "EHLO mail.test\r\nMAIL": true,
		"\xfe\xfd\x01\x04":     true,
		"\x18\x03\x03\x00\x03": false, "PROXY TCP4 10.0.0.1 10.0.0.2 1 443\r\n\x16": false, "GET\v/\vHTTP/1.1\r\n": false,
		"GET / HTTP/1.1\r\n": false, "GET / HTTP/": false, "\x80\x2e\x01\x03\x03": false, "\r\n GET / http/1.0\r\n": false, strings.Repeat("A", 9000): false,
	} {
		got, err := io.ReadAll(&Guard{R: iotest.OneByteReader(strings.NewReader(in))})
		if passes && (err != nil || string(got) != in) || !passes && (err != ErrLate || len(got) >= len(in)) {
			t.Errorf("%q: %q, %v", in, got, err)
		}
	}
}

// What is looked at is still there.
func TestNothingIsTaken(t *testing.T) {
	for _, in := range []string{"GET / HTTP/1.1\r\n\r\n", string(extensions(sni("good.test"))) + "rest", "\x00\x01opaque"} {
		r := bufio.NewReaderSize(strings.NewReader(in), BufferSize)
		_, _, _ = Peek(r)
		if got, err := io.ReadAll(r); string(got) != in || err != nil {
			t.Errorf("%q became %q, %v", in, got, err)
		}
	}
}

func FuzzPeek(f *testing.F) {
	f.Add(extensions(sni("good.test")))
	f.Add(extensions(sni("ｇood.test")))
	f.Add(recorded(f, &tls.Config{ServerName: "good.test", InsecureSkipVerify: true}))
	f.Add([]byte("GET / HTTP/1.1\r\nHost: good.test\r\n\r\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		kind, h, err := Peek(bufio.NewReaderSize(bytes.NewReader(b), BufferSize))
		if kind == TLS && err == nil && !agrees(b, h) {
			t.Fatalf("crypto/tls reads another name than %q in %x", h.Server, b)
		}
	})
}

// FuzzGuard: what passes is no request and no beginning of TLS, and all of the rest.
func FuzzGuard(f *testing.F) {
	for _, s := range []string{"hello\nGET / HTTP/1.1\r\n", "GET / HTTP/1.1\r\n", "\x80\x2e\x01\x03\x03", "PROXY TCP4 10.0.0.1 10.0.0.2 1 443\r\n", "\x18\x03\x03\x00\x03", "\xa0GET\v/\xa0HTTP/1.0\n"} {
		f.Add([]byte(s), uint8(1))
	}
	f.Fuzz(func(t *testing.T, b []byte, piece uint8) {
		if len(b) == 0 {
			return
		}
		got, err := io.ReadAll(&Guard{R: pieces{bytes.NewReader(b), int(piece) + 1}})
		if !bytes.HasPrefix(b, got) || (err == nil) != (len(got) == len(b)) {
			t.Fatalf("%q became %q, %v", b, got, err)
		}
		line, _, _ := bytes.Cut(bytes.TrimLeft(got, "\r\n\t "), []byte("\n"))
		if fields := strings.Fields(string(line)); len(fields) == 3 && strings.HasPrefix(fields[2], "HTTP/") && strings.Trim(fields[0], "ABCDEFGHIJKLMNOPQRSTUVWXYZ") == "" && len(fields[0]) > 2 {
			t.Fatalf("a request passes: %q", got)
		}
		if kind, _, ferr := Peek(bufio.NewReaderSize(bytes.NewReader(got), BufferSize)); len(got) > 0 && err == nil && got[0] != recordHandshake && got[0] != recordAlert && got[0] != recordChangeCipher && (kind != Opaque || ferr != nil) {
			t.Fatalf("%q passes, which is %d, %v", got, kind, ferr)
		}
	})
}

// agrees compares with what crypto/tls reads in the same bytes, where it reads
// anything.
func agrees(b []byte, h Hello) bool {
	same := true
	c := &tls.Config{GetConfigForClient: func(i *tls.ClientHelloInfo) (*tls.Config, error) {
		same = strings.EqualFold(strings.TrimSuffix(i.ServerName, "."), h.Server.String()) || strings.Contains(i.ServerName, "xn--")
		return nil, io.EOF
	}}
	_ = tls.Server(fixed{Reader: bytes.NewReader(b)}, c).Handshake()
	return same
}

// fixed is a connection that says b and hears nothing.
type fixed struct {
	io.Reader
	net.Conn
}

func (f fixed) Read(b []byte) (int, error)  { return f.Reader.Read(b) }
func (f fixed) Write(b []byte) (int, error) { return len(b), nil }
func (f fixed) Close() error                { return nil }
