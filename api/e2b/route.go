// SPDX-License-Identifier: Apache-2.0

package e2b

import (
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
)

// envdPort is the port under which clients know a sandbox's agent. Nothing
// listens there; the frontend answers.
const envdPort = 49983

// The headers by which clients name a sandbox's port when its host name does not.
const (
	headerSandbox = "E2b-Sandbox-Id"
	headerPort    = "E2b-Sandbox-Port"
)

// target is where a request wants to go: to a port of a sandbox, or with Port 0
// to the control plane.
type target struct {
	ID   string // in the form of the wire; nothing has looked it up
	Port int
	// Named says that the host name is the sandbox's own, and so is the
	// origin that a browser sees.
	Named bool
}

// route reads where a request goes. Who has a sandbox's host name goes there;
// everybody else must have come to a host that is this server's, so that no web
// page reaches it under a name of its own (DNS rebinding).
func route(host string, h http.Header, domain string) (target, error) {
	name, _, _ := strings.Cut(hostName(host), "%")
	if t, ok := sandboxHost(name, domain); ok {
		return t, nil
	}
	if !ownHost(name, domain) {
		return target{}, &apiError{http.StatusMisdirectedRequest, "this server is not " + strconv.Quote(name) + "; caisson serve --domain names the host it serves"}
	}
	id, port := h.Values(headerSandbox), h.Values(headerPort)
	switch {
	case len(id) == 0 && len(port) == 0:
		return target{}, nil
	case len(id) != 1 || len(port) != 1:
		return target{}, &apiError{http.StatusBadRequest, headerSandbox + " and " + headerPort + " are given once, together, or not at all"}
	}
	t := target{ID: wireID(id[0])}
	var ok bool
	if t.Port, ok = portNumber(port[0]); !ok || t.ID == "" {
		return target{}, &apiError{http.StatusBadRequest, headerSandbox + " or " + headerPort + " cannot be read"}
	}
	return t, nil
}

// hostName is a Host header without its port, in lower case, without a final dot.
func hostName(host string) string {
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	host = strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
	return strings.ToLower(strings.TrimSuffix(host, "."))
}

// sandboxHost reads <port>-<id>.<domain>.
func sandboxHost(name, domain string) (target, bool) {
	label, ok := strings.CutSuffix(name, "."+domain)
	if !ok || domain == "" {
		return target{}, false
	}
	port, id, ok := strings.Cut(label, "-")
	if !ok {
		return target{}, false
	}
	n, ok := portNumber(port)
	if !ok || wireID(id) != id || id == "" {
		return target{}, false
	}
	return target{ID: id, Port: n, Named: true}, true
}

// ownHost says whether a name is the server's: an address (which no page can
// make its own), localhost, or the domain.
func ownHost(name, domain string) bool {
	if _, err := netip.ParseAddr(name); err == nil {
		return true
	}
	return name == "localhost" || domain != "" && (name == domain || name == "api."+domain || name == "sandbox."+domain)
}

// portNumber reads 1 to 65535, without a sign or leading zeros.
func portNumber(s string) (int, bool) {
	n, err := strconv.ParseUint(s, 10, 16)
	return int(n), err == nil && n > 0 && s == strconv.FormatUint(n, 10)
}

// wireID is a sandbox's id as clients write it, without the suffix that old
// ones append ("-" and the id of a node), or empty where it is none: 1 to 64
// lower case letters and digits.
func wireID(s string) string {
	s, _, _ = strings.Cut(s, "-")
	if len(s) > 64 || strings.Trim(s, "abcdefghijklmnopqrstuvwxyz0123456789") != "" {
		return ""
	}
	return s
}
