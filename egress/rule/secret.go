// SPDX-License-Identifier: Apache-2.0

package rule

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
)

// SecretPlace is where the secret goes in a format.
const SecretPlace = "{}"

// ParseSecretHost reads a host of a secret. It names a host or all hosts below a name;
// without a port it means 443 alone, where plain HTTP is not spoken.
func ParseSecretHost(text, from string) (Rule, error) {
	r, err := Secret(text, from)
	if err == nil && r.Base().IsZero() {
		err = errors.New("a secret goes to a host or *.host")
	}
	return r, err
}

// MaxSecret bounds a secret, in bytes: servers take headers of 8 KiB.
const MaxSecret = 8 << 10

// CheckSecretValue refuses what cannot be in a header (RFC 9110, 5.5).
func CheckSecretValue(v string) error {
	switch {
	case v == "":
		return errors.New("it is empty")
	case len(v) > MaxSecret:
		return fmt.Errorf("it has more than %d bytes", MaxSecret)
	}
	for i := range len(v) {
		if v[i] <= ' ' && v[i] != ' ' || v[i] >= 0x7f {
			return errors.New("it has a character that no header takes")
		}
	}
	return nil
}

// CheckSecretHeader refuses a header that no secret goes into, and a format without
// one place for it. An empty format keeps what code wrote around its placeholder.
func CheckSecretHeader(header, format string) error {
	if header == "" || len(header) > 128 || strings.Trim(header, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_") != "" {
		return fmt.Errorf("%q is not the name of a header", header)
	}
	if slices.Contains(framing, http.CanonicalHeaderKey(header)) {
		return fmt.Errorf("the header %s says how the request is read; no secret goes there", header)
	}
	if format != "" && (strings.Count(format, SecretPlace) != 1 || len(format) > 256 || CheckSecretValue(format) != nil) {
		return fmt.Errorf("the format %q has no one {} for the secret", format)
	}
	return nil
}

// framing are headers that a program between the two ends reads.
var framing = []string{"Host", "Content-Length", "Transfer-Encoding", "Connection", "Upgrade", "Te", "Trailer", "Expect", "Keep-Alive", "Proxy-Connection"}
