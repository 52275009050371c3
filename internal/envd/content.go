// SPDX-License-Identifier: Apache-2.0

package envd

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
)

const (
	// MetadataHeader begins the headers of an upload that are a file's metadata.
	MetadataHeader = "X-Metadata-"
	// MetadataPrefix begins the names of the extended attributes that hold it.
	MetadataPrefix = "user.e2b."
	// MaxMetadata is how much of it a file has, names with their prefix and
	// values, in bytes: ext4 keeps all of an inode's attributes in one block.
	MaxMetadata = 4096
	// maxKey is what is left of the kernel's 255 bytes for a name.
	maxKey = 255 - len(MetadataPrefix)
)

// Written is a file that an upload wrote, as envd says it.
type Written struct {
	Name     string            `json:"name"`
	Path     string            `json:"path"`
	Type     string            `json:"type"`
	Metadata map[string]string `json:"metadata,omitempty"`
}

// ParseMetadata reads a file's metadata from an upload's headers. Keys are in
// lower case; of a header that is there twice the first counts.
func ParseMetadata(h http.Header) (map[string]string, error) {
	var all map[string]string
	total := 0
	for name, values := range h {
		if !strings.HasPrefix(name, MetadataHeader) || len(values) == 0 {
			continue
		}
		key, value := strings.ToLower(strings.TrimPrefix(name, MetadataHeader)), values[0]
		switch {
		case key == "":
			continue
		case len(key) > maxKey:
			return nil, fmt.Errorf("metadata key %q exceeds %d bytes", key, maxKey)
		case !printable(key):
			return nil, fmt.Errorf("metadata key %q is not printable ASCII", key)
		case !printable(value):
			return nil, fmt.Errorf("metadata value for key %q is not printable ASCII", key)
		}
		total += len(MetadataPrefix) + len(key) + len(value)
		if all == nil {
			all = map[string]string{}
		}
		all[key] = value
	}
	if total > MaxMetadata {
		return nil, errors.New("total metadata size " + strconv.Itoa(total) + " exceeds " + strconv.Itoa(MaxMetadata) + " bytes")
	}
	return all, nil
}

func printable(s string) bool {
	for i := range len(s) {
		if s[i] < 0x20 || s[i] > 0x7e {
			return false
		}
	}
	return true
}

// AcceptsGzip reads an Accept-Encoding header: whether gzip is the best answer
// that it takes, and whether there is one at all. The first of equals wins, and
// what names neither is ours to choose: as it is.
func AcceptsGzip(accept string) (gzip, ok bool) {
	identity := AcceptsIdentity(accept)
	best := -1.0
	for name, q := range encodings(accept) {
		if q == 0 || q <= best {
			continue
		}
		switch name {
		case "gzip":
			best, gzip, ok = q, true, true
		case "identity":
			best, gzip, ok = q, false, true
		case "*":
			best, gzip, ok = q, !identity, true
		}
	}
	return gzip, ok || identity
}

// AcceptsIdentity says whether an Accept-Encoding header takes an answer as it
// is: always, unless it is excluded (RFC 9110, 12.5.3).
func AcceptsIdentity(accept string) bool {
	named, star := -1.0, -1.0
	for name, q := range encodings(accept) {
		switch name {
		case "identity":
			named = q
		case "*":
			star = q
		}
	}
	if named >= 0 {
		return named > 0
	}
	return star != 0
}

// encodings yields the names of an Accept-Encoding header, in lower case, and
// their weights from 0 to 1.
func encodings(accept string) func(yield func(string, float64) bool) {
	return func(yield func(string, float64) bool) {
		for part := range strings.SplitSeq(accept, ",") {
			name, params, _ := strings.Cut(part, ";")
			q := 1.0
			for p := range strings.SplitSeq(params, ";") {
				if v, ok := strings.CutPrefix(strings.ToLower(strings.TrimSpace(p)), "q="); ok {
					if f, err := strconv.ParseFloat(v, 64); err == nil && f >= 0 && f <= 1 {
						q = f
					}
				}
			}
			if name = strings.ToLower(strings.TrimSpace(name)); name != "" && !yield(name, q) {
				return
			}
		}
	}
}

// ComposeRequest asks for files to become one.
type ComposeRequest struct {
	Sources     []string `json:"source_paths"`
	Destination string   `json:"destination"`
	Username    string   `json:"username,omitempty"`
}
