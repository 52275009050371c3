// SPDX-License-Identifier: Apache-2.0

package rule

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
)

// ParseHeaderHost reads a host whose requests get headers. It names a host or all hosts
// below a name; without a port it means 80 and 443.
func ParseHeaderHost(text string) (Rule, error) {
	r, err := parse(text, "", webPorts)
	if err == nil && r.Base().IsZero() {
		err = errors.New("it names no host and no *.host")
	}
	if err == nil {
		err = r.checkLocal()
	}
	return r, err
}

// CheckHeader refuses what cannot be a header of a request (RFC 9110, 5.1 and 5.5), and
// headers that a program between the two ends reads or writes. An error has nothing of the
// value.
func CheckHeader(name, value string) error {
	if name == "" || len(name) > 128 || strings.Trim(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_!#$%&'*+.^`|~") != "" {
		return errors.New("it has the name of no header")
	}
	key := http.CanonicalHeaderKey(strings.ReplaceAll(name, "_", "-")) // as a lenient server reads it
	if slices.Contains(framing, key) || slices.Contains(proxies, key) {
		return fmt.Errorf("the header %s says how the request is read, or is a proxy's", key)
	}
	if err := CheckSecretValue(value); err != nil {
		return fmt.Errorf("the value of the header %s cannot be sent: %w", key, err)
	}
	return nil
}

// proxies are headers that proxies write and read.
var proxies = []string{"Proxy-Authorization", "Proxy-Authenticate", "Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto"}
