// SPDX-License-Identifier: Apache-2.0

package envd

import (
	"net/http"
	"strings"
	"testing"
)

func TestAcceptsGzip(t *testing.T) {
	for accept, want := range map[string][2]bool{ // gzip, anything
		"":                               {false, true},
		"gzip":                           {true, true},
		"GZIP ; Q=0.5":                   {true, true},
		"gzip, deflate":                  {true, true},
		"br":                             {false, true},
		"identity, gzip":                 {false, true},
		"gzip;q=0.5, identity":           {false, true},
		"gzip, identity;q=0.5":           {true, true},
		"gzip;q=0":                       {false, true},
		"*":                              {false, true},
		"identity;q=0, *":                {true, true},
		"*;q=0":                          {false, false},
		"identity;q=0":                   {false, false},
		"*;q=0, gzip":                    {true, true},
		"*;q=0, identity":                {false, true},
		"gzip;q=x":                       {true, true},
		",,;q=1":                         {false, true},
		strings.Repeat("a;q=0.1,", 1000): {false, true},
	} {
		if gzip, ok := AcceptsGzip(accept); gzip != want[0] || ok != want[1] {
			t.Errorf("%.40q: gzip %v, ok %v; want %v", accept, gzip, ok, want)
		}
	}
}

// An answer as it is is refused only by whom it would be refused.
func FuzzAcceptsGzip(f *testing.F) {
	f.Add("gzip;q=0.5, *;q=0")
	f.Fuzz(func(t *testing.T, accept string) {
		gzip, ok := AcceptsGzip(accept)
		if gzip && !ok || !ok && AcceptsIdentity(accept) {
			t.Errorf("%q: gzip %v, ok %v", accept, gzip, ok)
		}
	})
}

func FuzzParseMetadata(f *testing.F) {
	f.Add("X-Metadata-Key", "value")
	f.Add("X-Metadata-", "")
	f.Fuzz(func(t *testing.T, name, value string) {
		m, err := ParseMetadata(http.Header{name: {value}})
		if err != nil {
			return
		}
		for k, v := range m {
			if k == "" || k != strings.ToLower(k) || len(MetadataPrefix)+len(k) > 255 || strings.ContainsAny(k+v, "\x00\n") || len(k)+len(v) > MaxMetadata {
				t.Errorf("%q=%q passes", k, v)
			}
		}
	})
}
