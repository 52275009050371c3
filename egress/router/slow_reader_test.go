// SPDX-License-Identifier: Apache-2.0

package router

import (
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// Code that reads slowly does not make a secret come in pieces that a host sent whole.
func TestSlowReaderLearnsNothing(t *testing.T) {
	const secret = "k7Qp2-secret-value-9xZt"
	for _, before := range []int{0, holdBytes - 5, readSize + holdBytes - 5, 2*readSize + holdBytes - 5, 3*readSize + holdBytes - 20} {
		synctest.Test(t, func(t *testing.T) {
			text := strings.Repeat("a", before) + secret + strings.Repeat("b", 3*readSize)
			body := Redaction{[]byte(secret)}.Body(io.NopCloser(strings.NewReader(text)), true)
			defer body.Close()
			var got strings.Builder
			for i, b := 0, make([]byte, 32<<10); ; i++ {
				if i%2 == 0 { // the next read follows at once, maybe before more has come
					time.Sleep(5 * holdTime)
				}
				n, err := body.Read(b)
				got.Write(b[:n])
				if err != nil {
					break
				}
			}
			if want := strings.Replace(text, secret, strings.Repeat("*", len(secret)), 1); got.String() != want {
				t.Errorf("behind %d bytes: %q", before, got.String()[before:before+len(secret)])
			}
		})
	}
}
