// SPDX-License-Identifier: Apache-2.0

package probe

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/net/dns/dnsmessage"
	"golang.org/x/sys/unix"
)

// Internet is what runs on an internet of the suite's own: this process is
// started in a network namespace that has nothing but a loopback, and every
// address leads there. So it is the name server that this host asks, and every
// host of the world; a caisson that is started in it is the installation's own.
type Internet struct {
	Argv    []string // what is started in it
	Address string   // what every name leads to
	Ports   []int    // on which its hosts listen
}

// Heard is what the internet heard.
type Heard struct {
	Queries     []string    // names that its name server was asked for, in lower case
	Connections []HeardConn // to its hosts
	Ended       string      // how what was started ended; empty when it ended well
	Said        string      // the end of what that wrote to stderr
	Fault       string      // why there was no internet
}

// HeardConn is one connection.
type HeardConn struct{ To, Bytes string }

// Bounds of what is heard.
const (
	maxQueries     = 10000
	maxConnections = 1000
	maxHead        = 8 << 10
	headTime       = 5 * time.Second
)

// fakeInternet is that internet.
type fakeInternet struct {
	Internet
	mu    sync.Mutex
	heard Heard
}

// internet prints what was heard, as one line.
func internet(text string) int {
	w := &fakeInternet{}
	err := json.Unmarshal([]byte(text), &w.Internet)
	if err == nil {
		err = w.open()
	}
	if err != nil {
		w.heard.Fault = err.Error()
	} else {
		w.run()
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	line, _ := json.Marshal(w.heard)
	_, _ = os.Stdout.Write(append(line, '\n'))
	return 0
}

// run starts what is to run, without this process's rights over the network.
func (w *fakeInternet) run() {
	_ = unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0)
	var said last
	cmd := exec.Command(w.Argv[0], w.Argv[1:]...)
	cmd.Stdout, cmd.Stderr = io.Discard, &said
	err := cmd.Run()
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.heard.Said = string(said); err != nil {
		w.heard.Ended = err.Error()
	}
}

// last keeps the end of what is written.
type last []byte

func (l *last) Write(b []byte) (int, error) {
	*l = append(*l, b...)
	*l = (*l)[max(0, len(*l)-2048):]
	return len(b), nil
}

// open makes every address this namespace's own, and listens at all of them.
func (w *fakeInternet) open() error {
	if err := everywhere(); err != nil {
		return fmt.Errorf("a network of its own: %w", err)
	}
	names, err := net.ListenPacket("udp", ":53")
	if err != nil {
		return err
	}
	go w.answer(names)
	ports := append(slices.Clone(w.Ports), 53) // a name server is asked over TCP, too
	for _, port := range ports {
		l, err := net.Listen("tcp", fmt.Sprintf(":%d", port))
		if err != nil {
			return err
		}
		go w.accept(l)
	}
	return nil
}

// everywhere brings the loopback up and routes everything to it.
func everywhere() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	lo, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	lo.SetUint16(unix.IFF_UP)
	if err := unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, lo); err != nil {
		return err
	}
	_ = route(unix.AF_INET6) // where there is IPv6
	return route(unix.AF_INET)
}

// route makes every address of a family a local one (rtnetlink(7)).
func route(family uint8) error {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_ROUTE)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	const loopback = 1 // its number in a namespace that has nothing else
	order := binary.NativeEndian
	m := make([]byte, unix.SizeofNlMsghdr, 64)
	m = append(m, family, 0, 0, 0, unix.RT_TABLE_LOCAL, unix.RTPROT_BOOT, unix.RT_SCOPE_HOST, unix.RTN_LOCAL)
	m = order.AppendUint32(m, 0)
	m = order.AppendUint16(m, 8)
	m = order.AppendUint16(m, unix.RTA_OIF)
	m = order.AppendUint32(m, loopback)
	order.PutUint32(m, uint32(len(m)))
	order.PutUint16(m[4:], unix.RTM_NEWROUTE)
	order.PutUint16(m[6:], unix.NLM_F_REQUEST|unix.NLM_F_CREATE|unix.NLM_F_ACK)
	if err := unix.Sendto(fd, m, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return err
	}
	b := make([]byte, 4096)
	n, _, err := unix.Recvfrom(fd, b, 0)
	if err != nil {
		return err
	}
	if n < unix.SizeofNlMsghdr+4 || order.Uint16(b[4:]) != unix.NLMSG_ERROR {
		return unix.EPROTO
	}
	if code := int32(order.Uint32(b[unix.SizeofNlMsghdr:])); code != 0 {
		return unix.Errno(-code)
	}
	return nil
}

// answer is the name server.
func (w *fakeInternet) answer(c net.PacketConn) {
	b := make([]byte, 4096)
	for {
		n, from, err := c.ReadFrom(b)
		if err != nil {
			return
		}
		if reply := w.reply(b[:n]); reply != nil {
			_, _ = c.WriteTo(reply, from)
		}
	}
}

// reply answers for every name, and keeps which it was.
func (w *fakeInternet) reply(query []byte) []byte {
	var p dnsmessage.Parser
	h, err := p.Start(query)
	if err != nil {
		return nil
	}
	q, err := p.Question()
	if err != nil {
		return nil
	}
	w.mu.Lock()
	if len(w.heard.Queries) < maxQueries {
		w.heard.Queries = append(w.heard.Queries, strings.ToLower(q.Name.String()))
	}
	w.mu.Unlock()
	m := dnsmessage.Message{Header: dnsmessage.Header{ID: h.ID, Response: true, RecursionDesired: h.RecursionDesired, RecursionAvailable: true}, Questions: []dnsmessage.Question{q}}
	if a := net.ParseIP(w.Address).To4(); q.Type == dnsmessage.TypeA && a != nil {
		m.Answers = []dnsmessage.Resource{{
			Header: dnsmessage.ResourceHeader{Name: q.Name, Type: q.Type, Class: q.Class, TTL: 1}, Body: &dnsmessage.AResource{A: [4]byte(a)},
		}}
	}
	out, err := m.Pack()
	if err != nil {
		return nil
	}
	return out
}

func (w *fakeInternet) accept(l net.Listener) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		go w.serve(c)
	}
}

// serve keeps the first words of a connection, and answers a request.
func (w *fakeInternet) serve(c net.Conn) {
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(headTime))
	w.mu.Lock()
	at := len(w.heard.Connections)
	if at == maxConnections {
		w.mu.Unlock()
		return
	}
	w.heard.Connections = append(w.heard.Connections, HeardConn{To: c.LocalAddr().String()})
	w.mu.Unlock()
	b := make([]byte, 4096)
	for words := 0; words < maxHead; {
		n, err := c.Read(b)
		words += n
		w.mu.Lock()
		heard := &w.heard.Connections[at]
		heard.Bytes += strings.ToValidUTF8(string(b[:n]), "?")
		all := heard.Bytes
		w.mu.Unlock()
		if err != nil || strings.HasPrefix(all, "\x16") {
			return
		}
		if strings.Contains(all, "\r\n\r\n") {
			_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok")
			return
		}
	}
}
