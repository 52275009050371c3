// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"encoding/json"
	"reflect"
	"testing"
)

// TestOrder: what is sent is what arrives, with all that types of their own write.
func TestOrder(t *testing.T) {
	o := Order{
		Rules: Rules{
			Allow: []Entry{{Text: "a.test", From: "--allow"}}, Deny: []Entry{{Text: "b.test"}},
			Web: [][]WebEntry{
				{{Entry: Entry{Text: "c.test", From: "policy.yaml:3"}, Methods: []string{"GET"}, Paths: []string{"/a/**"}, MaxBody: 7}},
				{{Entry: Entry{Text: "d.test"}}},
			},
			Secrets: []Secret{{Name: "KEY", From: "policy.yaml:9", Placeholder: "p", Value: "v", Hosts: []string{"c.test"}, Header: "X-Key", Format: "{}", Plain: true, Others: true}},
			TLS:     &TLS{Issuer: &Issuer{Cert: []byte{1}, Key: []byte{2}}, Roots: []byte{3}},
		},
		Budget: Budget{Egress: 1}, Guest: "198.18.0.2", Gateway: "198.18.0.1", MTU: 1500, Device: true, UID: 9,
	}
	b, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	var got Order
	if err := json.Unmarshal(b, &got); err != nil || !reflect.DeepEqual(got, o) {
		t.Errorf("%s became %+v, %v", b, got, err)
	}
	// Nothing is written of what is not there.
	if b, err := json.Marshal(Order{Rules: Rules{Allow: []Entry{{Text: "a.test"}}}}); err != nil ||
		string(b) != `{"rules":{"allow":[{"text":"a.test"}]},"budget":{},"guest":"","gateway":"","mtu":0}` {
		t.Errorf("%s, %v", b, err)
	}
}
