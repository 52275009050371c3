// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"errors"
	"os"
	"strings"
	"syscall"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"github.com/caisson-run/caisson/internal/envd"
)

// maxAttributes bounds what is read of a file's attributes, in bytes.
const maxAttributes = 64 << 10

// attributes are one file's, by its name or its descriptor.
type attributes struct {
	list   func([]byte) (int, error)
	get    func(string, []byte) (int, error)
	remove func(string) error
	set    func(string, []byte) error
}

func attributesOf(p string) attributes {
	return attributes{
		list: func(b []byte) (int, error) { return unix.Listxattr(p, b) },
		get:  func(name string, b []byte) (int, error) { return unix.Getxattr(p, name, b) },
	}
}

func attributesAt(f *os.File) attributes {
	fd := int(f.Fd())
	return attributes{
		list:   func(b []byte) (int, error) { return unix.Flistxattr(fd, b) },
		get:    func(name string, b []byte) (int, error) { return unix.Fgetxattr(fd, name, b) },
		remove: func(name string) error { return unix.Fremovexattr(fd, name) },
		set:    func(name string, b []byte) error { return unix.Fsetxattr(fd, name, b, 0) },
	}
}

// names lists the attributes that are metadata.
func (a attributes) names() ([]string, error) {
	n, err := a.list(nil)
	if err != nil || n == 0 {
		return nil, err
	}
	b := make([]byte, min(n, maxAttributes))
	if n, err = a.list(b); err != nil {
		return nil, err
	}
	var all []string
	for name := range strings.SplitSeq(string(b[:n]), "\x00") {
		if strings.HasPrefix(name, envd.MetadataPrefix) {
			all = append(all, name)
		}
	}
	return all, nil
}

// metadata reads what can be said in JSON: code inside sets what it likes.
func (a attributes) metadata() map[string]string {
	names, err := a.names()
	if err != nil {
		return nil
	}
	var all map[string]string
	total := 0
	for _, name := range names {
		b := make([]byte, envd.MaxMetadata)
		n, err := a.get(name, b)
		key := strings.TrimPrefix(name, envd.MetadataPrefix)
		if total += len(name) + n; total > envd.MaxMetadata {
			return all
		}
		if err != nil || !utf8.ValidString(key) || !utf8.Valid(b[:n]) {
			continue
		}
		if all == nil {
			all = map[string]string{}
		}
		all[key] = string(b[:n])
	}
	return all
}

// setMetadata replaces all metadata of a file and returns what it then has. A
// file system that knows no attributes keeps none.
func setMetadata(f *os.File, metadata map[string]string) (map[string]string, error) {
	a := attributesAt(f)
	old, err := a.names()
	if errors.Is(err, syscall.ENOTSUP) || err != nil && len(metadata) == 0 {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	for _, name := range old {
		if _, keep := metadata[strings.TrimPrefix(name, envd.MetadataPrefix)]; !keep {
			if err := a.remove(name); err != nil && err != syscall.ENODATA {
				return nil, err
			}
		}
	}
	for key, value := range metadata {
		err := a.set(envd.MetadataPrefix+key, []byte(value))
		if errors.Is(err, syscall.ENOTSUP) {
			return nil, nil
		}
		if err != nil {
			return nil, err
		}
	}
	return a.metadata(), nil
}
