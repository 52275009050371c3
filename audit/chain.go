// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"bytes"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"strconv"
	"strings"
	"time"

	"github.com/caisson-run/caisson/sandbox"
)

// The events of a record.
const (
	eventGenesis = "genesis"
	eventIntent  = "intent"
	eventOutcome = "outcome"
	// eventConnection is a connection of a sandbox's: intent and outcome in one.
	eventConnection = "connection"
	eventPrune      = "prune"
	eventRedact     = "redact"
)

// What each hash and signature is for comes first in what it is made of, so
// that none can stand for another.
const (
	recordDomain     = "caisson audit record v1\n"
	linkDomain       = "caisson audit link v1\n"
	signDomain       = "caisson audit signature v1\n"
	checkpointDomain = "caisson audit checkpoint v1\n"
)

// record is one row of the chain.
type record struct {
	seq        int64 // from 1, without a gap
	at         int64 // nanoseconds since 1970, UTC
	entry      string
	event      string
	prev       []byte // link of the record before; 32 zeros for the first
	bodyDigest []byte
	digest     []byte
	signature  []byte
	body       []byte // nil once dropped
}

// canonical is the one encoding of what a record's digest covers: numbers
// big-endian, everything else after its length, so that no two records share
// an encoding.
func (r *record) canonical() []byte {
	b := append(make([]byte, 0, 256), recordDomain...)
	b = binary.BigEndian.AppendUint64(b, uint64(r.seq))
	b = binary.BigEndian.AppendUint64(b, uint64(r.at))
	for _, field := range [][]byte{[]byte(r.entry), []byte(r.event), r.prev, r.bodyDigest} {
		b = appendField(b, field)
	}
	return b
}

func appendField(b, field []byte) []byte {
	b = binary.BigEndian.AppendUint32(b, uint32(len(field)))
	return append(b, field...)
}

// parseCanonical is the inverse of canonical; ok is false for what canonical
// cannot have made.
func parseCanonical(b []byte) (r record, ok bool) {
	b, ok = bytes.CutPrefix(b, []byte(recordDomain))
	if !ok || len(b) < 16 {
		return record{}, false
	}
	r.seq, r.at = int64(binary.BigEndian.Uint64(b)), int64(binary.BigEndian.Uint64(b[8:]))
	b = b[16:]
	var fields [4][]byte
	for i := range fields {
		if len(b) < 4 || uint64(len(b)-4) < uint64(binary.BigEndian.Uint32(b)) {
			return record{}, false
		}
		n := 4 + int(binary.BigEndian.Uint32(b))
		fields[i], b = b[4:n:n], b[n:]
	}
	r.entry, r.event, r.prev, r.bodyDigest = string(fields[0]), string(fields[1]), fields[2], fields[3]
	return r, len(b) == 0
}

// seal fills in what follows from the rest: digests and signature.
func (r *record) seal(key ed25519.PrivateKey, installation string) {
	r.bodyDigest = sum(r.body)
	r.digest = sum(r.canonical())
	r.signature = ed25519.Sign(key, signed(installation, r.digest))
}

// authentic says whether the key's owner signed the record's digest.
func (r *record) authentic(pub ed25519.PublicKey, installation string) bool {
	return ed25519.Verify(pub, signed(installation, r.digest), r.signature)
}

func signed(installation string, digest []byte) []byte {
	return appendField(appendField([]byte(signDomain), []byte(installation)), digest)
}

// link is what the next record holds on to. It covers the signature too, so
// that a changed signature is found by the chain alone.
func (r *record) link() []byte {
	return sum(appendField(appendField([]byte(linkDomain), r.digest), r.signature))
}

func sum(b []byte) []byte {
	d := sha256.Sum256(b)
	return d[:]
}

// Checkpoint is a signed statement of how long the record was and what it
// ended with. Kept elsewhere, it proves later that nothing before it was
// changed or put back.
type Checkpoint struct {
	Installation string    `json:"installation"`
	Count        int64     `json:"count"` // records, the genesis included
	Link         string    `json:"link"`  // of record number Count, hex
	Time         time.Time `json:"time"`
	Signature    string    `json:"signature"` // Ed25519, hex

	// bare says that its keeper vouches for it, since it has no signature.
	bare bool
}

// Head is the part of a checkpoint that a person keeps: COUNT:LINK.
func (c Checkpoint) Head() string { return strconv.FormatInt(c.Count, 10) + ":" + c.Link }

// ParseHead reads what Head gave, for a Verify. Errors are ErrInvalid.
func ParseHead(s string) (Checkpoint, error) {
	count, link, _ := strings.Cut(strings.TrimSpace(s), ":")
	n, err := strconv.ParseInt(count, 10, 64)
	raw, herr := hex.DecodeString(link)
	if err != nil || herr != nil || n < 1 || len(raw) != sha256.Size || hex.EncodeToString(raw) != link {
		return Checkpoint{}, &sandbox.Error{Op: "head " + clean(s, 100), Kind: sandbox.ErrInvalid, Problem: "it is not COUNT:LINK", Hint: "caisson audit head prints one"}
	}
	return Checkpoint{Count: n, Link: link, bare: true}, nil
}

// unixTime is the time of a record.
func unixTime(at int64) time.Time { return time.Unix(0, at).UTC() }

func newCheckpoint(key ed25519.PrivateKey, installation string, count int64, link []byte, at int64) Checkpoint {
	c := Checkpoint{Installation: installation, Count: count, Link: hex.EncodeToString(link), Time: unixTime(at)}
	c.Signature = hex.EncodeToString(ed25519.Sign(key, c.message()))
	return c
}

func (c *Checkpoint) message() []byte {
	b := appendField([]byte(checkpointDomain), []byte(c.Installation))
	b = binary.BigEndian.AppendUint64(b, uint64(c.Count))
	b = binary.BigEndian.AppendUint64(b, uint64(c.Time.UnixNano()))
	return appendField(b, []byte(c.Link))
}

// valid says whether the key's owner signed it, for this installation.
func (c *Checkpoint) valid(pub ed25519.PublicKey, installation string) bool {
	sig, err := hex.DecodeString(c.Signature)
	return err == nil && pub != nil && c.Installation == installation && ed25519.Verify(pub, c.message(), sig)
}
