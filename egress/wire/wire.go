// SPDX-License-Identifier: Apache-2.0

// Package wire is what a router and its owner say to each other: one Order
// down, Events up, Commands down, each a JSON line on a socket that only these
// two processes hold. The router parses what a sandbox sends, so its owner
// reads what it says within bounds.
package wire

import (
	"encoding/json"
	"net"
	"strconv"
	"strings"
	"time"
)

// Argv0 is how the binary is started to become a router.
const Argv0 = "caisson-router"

// The descriptors that a router is started with.
const (
	FD  = 3 // the socket to its owner
	NIC = 4 // the sandbox's wire: one packet per message; or see Order.Device
	// Program is the program itself, open; nothing between is.
	Program = 255
)

// MaxLine bounds one line from a router, in bytes, and MaxOrder one to it: an
// order holds the whole allow-list and what the host trusts.
const (
	MaxLine  = 1 << 20
	MaxOrder = 16 << 20
)

// A router tells so many connections at once, and then one more each time so
// long has passed: code inside can make as many as it likes. Beyond that they are
// counted.
const (
	RecordsAtOnce = 4096
	RecordEvery   = 10 * time.Second
)

// MaxHosts is how many hosts a router ends the TLS of at most: each is in the
// certificate that a client is sent with every connection.
const MaxHosts = 100

// Order tells the router what to let through.
type Order struct {
	Rules  Rules  `json:"rules"`
	Budget Budget `json:"budget"`
	// Guest and Gateway are the addresses at the two ends of the wire.
	Guest   string `json:"guest"`
	Gateway string `json:"gateway"`
	// MTU is how long a packet may be, in bytes.
	MTU int `json:"mtu"`
	// Device says that NIC is a socket over which the descriptor of a TUN device
	// comes, once, and that this is the wire.
	Device bool `json:"device,omitempty"`
	// Closed says that nothing will ever be let through: the router only tells what was
	// tried. It may make no socket then, and takes no Change.
	Closed bool `json:"closed,omitempty"`
	// UID, when not 0, is who the router becomes, as user and as group.
	UID int `json:"uid,omitempty"`
}

// Rules are an allow-list and a deny-list, as they were written.
type Rules struct {
	Allow []Entry `json:"allow,omitempty"`
	Deny  []Entry `json:"deny,omitempty"`
	// Web are the entries that say something of requests, by the file that they
	// stand in.
	Web     [][]WebEntry `json:"web,omitempty"`
	Secrets []Secret     `json:"secrets,omitempty"`
	Headers []Header     `json:"headers,omitempty"`
	// TLS is what the router ends TLS with; nil when no entry asks for it.
	TLS *TLS `json:"tls,omitempty"`
}

// Entry is one entry of a list and where it stands.
type Entry struct {
	Text string `json:"text"`
	From string `json:"from,omitempty"`
}

// WebEntry is an entry that says something of requests.
type WebEntry struct {
	Entry
	Methods []string `json:"methods,omitempty"`
	Paths   []string `json:"paths,omitempty"`
	MaxBody int64    `json:"max_body,omitempty"` // bytes
	// MaxRequests is how many requests the entry lets through.
	MaxRequests int64 `json:"max_requests,omitempty"`
	// Closed says that no other entry would let through more.
	Closed bool `json:"closed,omitempty"`
}

// TLS is what a router needs to stand between a sandbox and a host.
type TLS struct {
	Issuer *Issuer `json:"issuer"`
	// Roots are what hosts are held to, in PEM.
	Roots []byte `json:"roots"`
}

// Issuer is a certificate that certifies the hosts of one router, and its key.
type Issuer struct {
	Cert []byte `json:"cert"` // DER
	Key  []byte `json:"key"`  // PKCS #8
}

// String hides the key.
func (*Issuer) String() string { return "(issuer)" }

// GoString hides it, too.
func (*Issuer) GoString() string { return "(issuer)" }

// Secret is a secret that is put into requests.
type Secret struct {
	Name        string   `json:"name"` // of the variable that has the placeholder
	From        string   `json:"from,omitempty"`
	Placeholder string   `json:"placeholder"`
	Value       Value    `json:"value"`
	Hosts       []string `json:"hosts"`
	Header      string   `json:"header,omitempty"` // Authorization when empty
	Format      string   `json:"format,omitempty"`
	Plain       bool     `json:"plain,omitempty"`  // over HTTP without TLS, too
	Others      bool     `json:"others,omitempty"` // requests may have other credentials
	// Serial, when not 0, is the number of a Value that the owner can renew, and Expires
	// when it is worth nothing any more, as far as that is known.
	Serial  int64     `json:"serial,omitempty"`
	Expires time.Time `json:"expires,omitzero"`
}

// Header is a header that requests to a host get, because a client wants it so. Without a
// Value it is one that was asked for once, and is not set.
type Header struct {
	Host  string `json:"host"` // see rule.ParseHeaderHost
	Name  string `json:"name"`
	Value Value  `json:"value,omitempty"`
}

// Renewal is another value of a secret, or why there is none.
type Renewal struct {
	Name    string    `json:"name"`
	Value   Value     `json:"value,omitempty"`
	Serial  int64     `json:"serial,omitempty"`
	Expires time.Time `json:"expires,omitzero"`
	Problem string    `json:"problem,omitempty"`
}

// Value is a secret's value. Only JSON shows it; no message does.
type Value string

// String hides it.
func (Value) String() string { return "(secret)" }

// GoString hides it, too.
func (Value) GoString() string { return "(secret)" }

// Encoding/json learns what a type looks like with all that is below it, before it reads
// the first value. A router that is started by a packet should not wait for that where
// there are none of these.

type (
	plainWebEntry WebEntry
	plainTLS      TLS
	plainSecret   Secret
)

// MarshalJSON writes e as it is.
func (e WebEntry) MarshalJSON() ([]byte, error) { return json.Marshal(plainWebEntry(e)) }

// UnmarshalJSON reads e as it is.
func (e *WebEntry) UnmarshalJSON(b []byte) error { return json.Unmarshal(b, (*plainWebEntry)(e)) }

// MarshalJSON writes t as it is.
func (t TLS) MarshalJSON() ([]byte, error) { return json.Marshal(plainTLS(t)) }

// UnmarshalJSON reads t as it is.
func (t *TLS) UnmarshalJSON(b []byte) error { return json.Unmarshal(b, (*plainTLS)(t)) }

// MarshalJSON writes s as it is.
func (s Secret) MarshalJSON() ([]byte, error) { return json.Marshal(plainSecret(s)) }

// UnmarshalJSON reads s as it is.
func (s *Secret) UnmarshalJSON(b []byte) error { return json.Unmarshal(b, (*plainSecret)(s)) }

// Budget bounds what goes through; 0 means no bound of this kind.
type Budget struct {
	Egress      int64 `json:"egress,omitempty"`      // bytes that leave
	Queries     int64 `json:"queries,omitempty"`     // DNS queries
	Connections int64 `json:"connections,omitempty"` // connections made
	Bandwidth   int64 `json:"bandwidth,omitempty"`   // bytes per second, each direction
}

// EventKind says what an Event tells.
type EventKind string

// The events.
const (
	Ready      EventKind = "ready"      // packets are read as soon as Begin comes
	Failed     EventKind = "failed"     // the router cannot work; it ends
	Connection EventKind = "connection" // a connection has ended
	Refused    EventKind = "refused"    // an attempt was refused, the first of its sort
	Changed    EventKind = "changed"    // a change is in force; what it does not allow is closed
	Live       EventKind = "live"       // answers Count: how many connections there are now
	Stale      EventKind = "stale"      // a secret's value has expired, or a host refused it: Secret, Serial
	Exceeded   EventKind = "exceeded"   // a budget is used up; nothing goes through any more
	Done       EventKind = "done"       // the last event: Totals
)

// Event is one line from the router.
type Event struct {
	Kind    EventKind `json:"kind"`
	Error   string    `json:"error,omitempty"`   // Failed
	Budget  string    `json:"budget,omitempty"`  // Exceeded: the key that was used up
	Secret  string    `json:"secret,omitempty"`  // Stale: its name
	Serial  int64     `json:"serial,omitempty"`  // Stale: of the value
	Live    int       `json:"live,omitempty"`    // Live
	Record  *Record   `json:"record,omitempty"`  // Connection, Refused
	Totals  *Totals   `json:"totals,omitempty"`  // Done
	Repeats []Record  `json:"repeats,omitempty"` // Done: refusals that came again, with Count
}

// Protocol is what an attempt was made with.
type Protocol string

// The protocols.
const (
	DNS Protocol = "dns"
	TCP Protocol = "tcp"
	UDP Protocol = "udp"
)

// Record is one connection, or one sort of refused attempt.
type Record struct {
	Protocol Protocol `json:"protocol"`
	Host     string   `json:"host,omitempty"`    // the name that was asked for
	Address  string   `json:"address,omitempty"` // what was dialled
	Port     int      `json:"port,omitempty"`
	Rule     string   `json:"rule,omitempty"` // what let it through or refused it
	From     string   `json:"from,omitempty"` // where the rule stands
	Reason   string   `json:"reason,omitempty"`
	Open     bool     `json:"open,omitempty"` // an entry of its own would allow it
	// Unresolved says that an allowed name has no address.
	Unresolved bool `json:"unresolved,omitempty"`

	Method string `json:"method,omitempty"` // of a request that was refused
	Path   string `json:"path,omitempty"`   // its path, cut

	Sent     int64         `json:"sent,omitempty"`     // bytes that left
	Received int64         `json:"received,omitempty"` // bytes that came
	Started  time.Time     `json:"started,omitzero"`
	Duration time.Duration `json:"duration,omitempty"`
	Count    int64         `json:"count,omitempty"` // how often, when more than once
}

// Entry is the entry of an allow-list that would let the refused request through,
// as a policy file has it.
func (r Record) Entry() string {
	path := r.Path
	if strings.ContainsAny(path, "%?#\\[]{}*…") { // not as it stands in a pattern
		path = "/**"
	}
	return "{host: " + strconv.Quote(net.JoinHostPort(r.Host, strconv.Itoa(r.Port))) + ", methods: [" + strconv.Quote(r.Method) + "], paths: [" + strconv.Quote(path) + "]}"
}

// Totals count everything, also what there was no record for.
type Totals struct {
	Connections int64 `json:"connections"`
	Queries     int64 `json:"queries"`
	Refused     int64 `json:"refused"`
	Sent        int64 `json:"sent"`
	Received    int64 `json:"received"`
	Unrecorded  int64 `json:"unrecorded,omitempty"` // records beyond the bound
}

// CommandKind says what a Command wants.
type CommandKind string

// The commands. EOF on the socket ends the router at once.
const (
	// Begin has the router read packets. Its owner knows by that whether
	// anything can have gone through a router that it ends.
	Begin  CommandKind = "begin"
	Change CommandKind = "change" // other rules: what they do not allow is closed
	Count  CommandKind = "count"  // say how many connections there are: Live
	// Renewed answers Stale.
	Renewed CommandKind = "renewed"
	End     CommandKind = "end" // close everything, say Done
)

// Command is one line to the router.
type Command struct {
	Kind  CommandKind `json:"kind"`
	Rules *Rules      `json:"rules,omitempty"` // Change
	// Renewal goes with Renewed.
	Renewal *Renewal `json:"renewal,omitempty"`
}
