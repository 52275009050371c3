// SPDX-License-Identifier: Apache-2.0

package e2b_test

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"

	"golang.org/x/net/http2"
)

// listensVariable makes this program one that listens on a port inside.
const listensVariable = "CAISSON_TEST_LISTENS"

// listenInside is a program with a port, which it prints.
func listenInside(how string) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	fmt.Println(ln.Addr().(*net.TCPAddr).Port)
	switch how {
	case "flood":
		flood(ln)
	case "rude":
		rude(ln)
	}
	var p http.Protocols
	p.SetUnencryptedHTTP2(true) // and no HTTP/1.1, as gRPC servers have it
	panic((&http.Server{Protocols: &p, Handler: http.HandlerFunc(echoCall)}).Serve(ln))
}

// echoCall answers a stream of messages as a gRPC server does: each at once, the
// status in a trailer that was not announced.
func echoCall(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", r.Header.Get("Content-Type"))
	w.Header().Set("X-Saw", fmt.Sprintf("%s %s %s %s", r.Proto, r.Host, r.Header.Get("Te"), r.Header.Get("X-Api-Key")))
	w.(http.Flusher).Flush()
	buf := make([]byte, 64<<10)
	for {
		n, err := r.Body.Read(buf)
		w.Write([]byte(strings.ToUpper(string(buf[:n]))))
		w.(http.Flusher).Flush()
		if err != nil {
			break
		}
	}
	w.Header().Set(http.TrailerPrefix+"Grpc-Status", "7")
}

// flood answers with useless frames, for ever.
func flood(ln net.Listener) {
	for {
		c, err := ln.Accept()
		if err != nil {
			panic(err)
		}
		go func() {
			io.CopyN(io.Discard, c, int64(len(http2.ClientPreface)))
			f := http2.NewFramer(c, c)
			f.WriteSettings()
			// Frames of a stream that is not asked for yet are another error.
			for asked := false; !asked; {
				frame, err := f.ReadFrame()
				if err != nil {
					return
				}
				_, asked = frame.(*http2.HeadersFrame)
			}
			go io.Copy(io.Discard, c)
			// :status 200, from the table that every HPACK has.
			f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: []byte{0x88}, EndHeaders: true})
			for f.WriteData(1, false, nil) == nil {
			}
		}()
	}
}

// listening starts such a program in b, and says its port. It ends with the test.
func (d *frontend) listening(t *testing.T, b box, how string) string {
	t.Helper()
	self, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	name := "/tmp/" + how
	if status, _, _ := d.raw(t, "POST", "/files?path="+name, with(b.to(49983), "Content-Type", "application/octet-stream"), string(self)); status != 200 {
		t.Fatal(status)
	}
	d.sh(t, b, "chmod +x "+name)
	q, _ := json.Marshal(map[string]any{"process": map[string]any{"cmd": name, "envs": map[string]string{listensVariable: how}}})
	ctx, stop := context.WithCancel(t.Context())
	t.Cleanup(stop)
	req, _ := http.NewRequestWithContext(ctx, "POST", d.url+"/process.Process/Start", strings.NewReader(envelope(string(q))))
	for k, v := range with(b.to(49983), "Content-Type", "application/connect+json") {
		req.Header.Set(k, v)
	}
	resp, err := http.DefaultTransport.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { resp.Body.Close() })
	for {
		var head [5]byte
		if _, err := io.ReadFull(resp.Body, head[:]); err != nil {
			t.Fatal(err)
		}
		message := make([]byte, binary.BigEndian.Uint32(head[1:]))
		if _, err := io.ReadFull(resp.Body, message); err != nil || head[0] != 0 {
			t.Fatalf("it does not listen: %q, %v", message, err)
		}
		var e struct {
			Event struct{ Data struct{ Stdout []byte } }
		}
		if json.Unmarshal(message, &e); len(e.Event.Data.Stdout) > 0 {
			return strings.TrimSpace(string(e.Event.Data.Stdout))
		}
	}
}

// without TLS a client that speaks HTTP/2 has known it before.
func knowing(t *testing.T) http.RoundTripper {
	var p http.Protocols
	p.SetUnencryptedHTTP2(true)
	tr := &http.Transport{Protocols: &p}
	t.Cleanup(tr.CloseIdleConnections)
	return tr
}

// A program that speaks HTTP/2 alone is spoken to in it: messages go in both
// directions in turns, and what comes behind the last one arrives.
func TestPortsHTTP2(t *testing.T) {
	d := newFrontend(t)
	b := d.create(t, "")
	host := d.listening(t, b, "http2") + "-" + b.id + ".localhost:1"
	for _, kind := range []string{"application/grpc", "application/grpc+proto", "text/plain"} {
		body, input := io.Pipe()
		req, _ := http.NewRequestWithContext(t.Context(), "POST", d.url+"/echo.Echo/Both", body)
		req.Host = host
		req.Header = http.Header{"Content-Type": {kind}, "Te": {"trailers"}, "X-Api-Key": {d.key}}
		resp, err := knowing(t).RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		if saw := resp.Header.Get("X-Saw"); resp.StatusCode != 200 || saw != "HTTP/2.0 "+host+" trailers " {
			t.Fatalf("%s: %d, and the program saw %q", kind, resp.StatusCode, saw)
		}
		for _, word := range []string{"one", "two", strings.Repeat("x", 20_000)} {
			io.WriteString(input, word)
			got := make([]byte, len(word))
			if _, err := io.ReadFull(resp.Body, got); err != nil || string(got) != strings.ToUpper(word) {
				t.Fatalf("%s: %.20q, %v", kind, got, err)
			}
		}
		input.Close()
		if rest, err := io.ReadAll(resp.Body); err != nil || len(rest) > 0 || resp.Trailer.Get("Grpc-Status") != "7" {
			t.Errorf("%s: %q behind the last message, %v, trailers %v", kind, rest, err, resp.Trailer)
		}
		resp.Body.Close()
	}
	// In HTTP/1.1 it is asked as any port is, and does not understand.
	if status, text := d.ask(t, "GET", "/", map[string]string{"Host": host}, ""); status != 502 {
		t.Errorf("in HTTP/1.1: %d %v", status, text)
	}
	req, _ := http.NewRequestWithContext(t.Context(), "GET", d.url, nil)
	req.Host = "9-" + b.id + ".localhost"
	resp, err := knowing(t).RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if text, _ := io.ReadAll(resp.Body); resp.StatusCode != 502 || !strings.Contains(string(text), "port is not open") {
		t.Errorf("a closed port: %d %s", resp.StatusCode, text)
	}
}

// A program that sends useless frames is hung up on, and the sandbox's agent and
// other ports are there as before.
func TestPortsFlood(t *testing.T) {
	d := newFrontend(t)
	b := d.create(t, "")
	bad, good := d.listening(t, b, "flood"), d.listening(t, b, "http2")
	tr := knowing(t)
	ask := func(port string) (*http.Response, error) {
		req, _ := http.NewRequestWithContext(t.Context(), "POST", d.url, strings.NewReader("x"))
		req.Host = port + "-" + b.id + ".localhost"
		return tr.RoundTrip(req)
	}
	resp, err := ask(bad)
	if err == nil {
		_, err = io.ReadAll(resp.Body)
		resp.Body.Close()
	}
	if err == nil {
		t.Error("a flood ended well")
	}
	resp, err = ask(good)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if got, err := io.ReadAll(resp.Body); err != nil || string(got) != "X" {
		t.Errorf("beside the flood: %q, %v", got, err)
	}
	if got := d.sh(t, b, "echo here"); got != "here\n" {
		t.Errorf("the agent behind the flood: %q", got)
	}
}
