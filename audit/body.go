// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"
)

// A body is the canonical JSON of one of these: fields in the order of
// declaration, map keys sorted, no space. The digest is over the very bytes
// that are stored, so a field that a later version adds changes no old record.
type (
	genesisBody struct {
		Version      int    `json:"version"`
		Installation string `json:"installation"`
		PublicKey    string `json:"public_key"` // Ed25519, hex
	}
	pruneBody struct {
		Before  int64 `json:"before"`  // nanoseconds since 1970
		Through int64 `json:"through"` // bodies up to this record were dropped
	}
	redactBody struct {
		Content string `json:"content"` // digest, hex
		Reason  string `json:"reason"`
	}
)

// maxBody bounds one body, in bytes.
const maxBody = 4 << 20

// encode is the canonical encoding of a body.
func encode(v any) ([]byte, error) {
	b, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	if len(b) > maxBody {
		return nil, fmt.Errorf("%w: %d bytes", errBodyTooLarge, len(b))
	}
	return b, nil
}

var errBodyTooLarge = errors.New("the record is too large")

// decode reads a body. Fields that a later version added are passed over;
// anything after the one value is an error.
func decode(b []byte, v any) error {
	d := json.NewDecoder(bytes.NewReader(b))
	if err := d.Decode(v); err != nil {
		return err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errors.New("there is more than one value")
	}
	return nil
}

// clean makes a string that JSON keeps as it is: bytes that are not UTF-8
// become \xNN, and at most max bytes are kept, with a mark where it was cut.
func clean(s string, max int) string {
	if len(s) > max {
		s = s[:max] + fmt.Sprintf("… (%d bytes cut)", len(s)-max)
	}
	if utf8.ValidString(s) {
		return s
	}
	const hexDigits = "0123456789abcdef"
	var b strings.Builder
	for i, r := range s {
		if r == utf8.RuneError {
			if _, n := utf8.DecodeRuneInString(s[i:]); n == 1 {
				b.WriteString(`\x`)
				b.WriteByte(hexDigits[s[i]>>4])
				b.WriteByte(hexDigits[s[i]&15])
				continue
			}
		}
		b.WriteRune(r)
	}
	return b.String()
}

// refers are the digests of the content that a call's record refers to. ok is false for
// another record.
func (r *record) refers() (digests []string, ok bool) {
	var c Call
	var e Ending
	switch r.event { // an intent and an outcome share no field's name
	case eventIntent:
		ok = decode(r.body, &c) == nil
	case eventOutcome:
		ok = decode(r.body, &e) == nil
	case eventConnection:
		ok = decode(r.body, new(connectionBody)) == nil
	}
	for _, content := range []*Content{c.Params, c.Argv, c.Code, e.Stdout, e.Stderr} {
		if d := content.blob(); d != "" {
			digests = append(digests, d)
		}
	}
	return digests, ok
}
