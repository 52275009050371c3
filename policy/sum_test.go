// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"testing"

	"github.com/caisson-run/caisson/sandbox"
)

// TestDigestKeepsItsForm: a digest is in records and in questions that were answered, so it
// stays what it was made of when it was first written, with layers and without.
func TestDigestKeepsItsForm(t *testing.T) {
	file := &File{}
	for _, layers := range [][2]*File{{nil, nil}, {file, nil}, {nil, file}, {file, file}} {
		p := &Policy{system: layers[0], file: layers[1]}
		got, err := p.sum()
		if err != nil {
			t.Fatal(err)
		}
		form, err := json.Marshal(struct {
			Version      int
			System, File *canonical
			Defaults     sandbox.Limits
		}{1, p.system.canonical(), p.file.canonical(), p.defaults})
		if err != nil {
			t.Fatal(err)
		}
		sum := sha256.Sum256(form)
		if want := "sha256:" + hex.EncodeToString(sum[:]); got != want {
			t.Errorf("the digest with layers %v is %s instead of %s", layers, got, want)
		}
	}
}
