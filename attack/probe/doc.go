// SPDX-License-Identifier: Apache-2.0

// Package probe is the half of package attack that runs inside a sandbox: the
// caisson binary itself, shown there read-only, so that it works in any image
// and can make system calls that no script can.
//
// It tries what an attacker would try and keeps hold of what it gets: an open
// descriptor, a namespace, a mount. It changes nothing outside: what it opens
// for writing it does not write to unless it is a canary. Whether an attack has
// worked is for the host to see; the probe says what it tried, and passes on
// canaries that it found. It passes on nothing else that it reads.
package probe

// Word as the first argument makes the caisson binary a probe.
const Word = "attack-probe"

// The modes, the second argument. The last one is always the nonce.
const (
	ModeLive      = "live"      // all attempts, with a Config as JSON
	ModeVictim    = "victim"    // on the host: a process to be attacked
	ModeSleep     = "sleep"     // does nothing, with a nonce in its arguments
	ModeProcesses = "processes" // N
	ModeMemory    = "memory"    // KIND BYTES
	ModeDisk      = "disk"      // BYTES FILES DIR...
	ModeOutput    = "output"    // BYTES
	ModeFiles     = "files"     // N
	ModeQuota     = "quota"     // N: takes what is counted by user
	ModeBusy      = "busy"      // N: spins in N threads
	ModeWear      = "wear"      // FILE: writes it through to the disk
	ModeNoise     = "noise"     // N: spins in N processes
	ModeQuiet     = "quiet"     // works a little for each line that it reads
	ModePlaced    = "placed"    // leaves links where the host will write: TARGET
	ModeStubborn  = "stubborn"  // ignores signals and is busy
	ModeStopped   = "stopped"   // stops itself
	ModeDaemon    = "daemon"    // leaves a process behind, with a nonce
	ModeAgent     = "agent"     // attacks the first process
	ModeLinks     = "links"     // leaves links to be collected: TARGET

	ModeNetwork  = "network"  // knocks at servers, with Knocks as JSON
	ModeListen   = "listen"   // PORT: waits for who comes
	ModeHold     = "hold"     // TO RESOLVER: keeps a connection, and tries to have it back
	ModeFlood    = "flood"    // KIND TO RESOLVER: uses a host without end
	ModeInternet = "internet" // on the host: what a caisson takes for the internet, with Internet as JSON

	modeChild = "child" // one attempt that needs a process of its own
	modeSwap  = "swap"
)

// Config is what the host tells the probe.
type Config struct {
	Nonce      string   // in the probe's arguments, and in the names of what it makes
	Outside    string   // a directory of the host that is not shown
	Victim     int      // a process of the host, by its number there
	VictimAt   uint64   // where in its memory its canary is
	Handle     []byte   // file handle of a canary outside; empty when the host has none
	HandleType int32    //
	Disks      [][2]int // device numbers of the host's disks
	Groups     string   // controllers of a control group hierarchy of v1; empty when there is none
	TCP, UDP   int      // ports on the host's 127.0.0.1
	Abstract   string   // abstract socket of the host, without @
	Refused    []Junk   // system calls that are to be refused whatever their arguments
	Only       []string // cases to try; empty is all
}

// Junk is a system call to be made with arguments that mean nothing.
type Junk struct {
	Number int
	Name   string
}

// Knocks are what a probe says to servers.
type Knocks struct {
	Case     string
	Resolver string // address and port
	List     []Knock
}

// Knock is one connection or datagram.
type Knock struct {
	What  string
	To    string // host and port; a name is asked for at the resolver
	Bytes string // Placeholder stands for the value of SecretName
	TLS   string // when not empty, the name in a ClientHello
	First string // said before that
	UDP   bool
	Must  bool   // it is allowed, and waited for
	Query uint16 // when not 0, all that is done is to ask for To, a name, with this type
}

// SecretName is the variable that has a secret's placeholder, and Placeholder
// what stands for that in Knock.Bytes.
const (
	SecretName  = "CAISSON_ATTACK_KEY"
	Placeholder = "{placeholder}"
)

// Try is one line of the probe's output.
type Try struct {
	Case  string `json:"case"`
	What  string `json:"what"`
	Got   bool   `json:"got,omitempty"`   // it says that it worked
	Error string `json:"error,omitempty"` // or why not
	Found string `json:"found,omitempty"` // canaries that it found
	Count int64  `json:"count,omitempty"` // how much it got
}

// The cases that are no attempts: the probe waits for a byte after the first,
// for the end of its input after the second.
const (
	CaseStart = "start"
	CaseReady = "ready"
)

// The places inside.
const (
	AtProbe     = "/attack/probe"
	AtData      = "/data"      // read-only
	AtWorkspace = "/workspace" // read-write
)

// MemfdName is the name of what a probe makes by another entry.
func MemfdName(entry, nonce string) string { return "caisson-attack-" + entry + "-" + nonce }
