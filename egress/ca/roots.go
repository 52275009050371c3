// SPDX-License-Identifier: Apache-2.0

package ca

import (
	"errors"
	"os"

	"github.com/caisson-run/caisson/internal/files"
	"github.com/caisson-run/caisson/sandbox"
)

// Bundles are where systems keep the certificates of authorities in one file,
// those that were found most often first.
func Bundles() []string {
	return []string{
		"/etc/ssl/certs/ca-certificates.crt",                // Debian, Alpine, Arch, NixOS
		"/etc/pki/tls/certs/ca-bundle.crt",                  // Fedora
		"/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem", // Fedora, CentOS
		"/etc/ssl/ca-bundle.pem",                            // SUSE
		"/etc/ssl/cert.pem",                                 // Alpine, BSD
	}
}

// MaxBundle bounds a bundle, in bytes; public ones have about 220 KiB.
const MaxBundle = 4 << 20

// errNoBundle says that no place has one.
var errNoBundle = errors.New("there is no file with certificates of authorities")

// HostRoots reads what this host trusts, as programs in Go find it:
// $SSL_CERT_FILE, else the system's bundle. Errors are *sandbox.Error.
func HostRoots() ([]byte, error) {
	places := Bundles()
	if own := os.Getenv("SSL_CERT_FILE"); own != "" {
		places = []string{own}
	}
	b, _, err := FirstBundle(places, func(path string) ([]byte, error) {
		return files.Read(path, MaxBundle)
	})
	if err != nil {
		return nil, &sandbox.Error{Op: "network", Kind: sandbox.ErrUnavailable, Problem: "this host's trusted certificates cannot be read", Cause: err,
			Hint: "install ca-certificates, or name a file in $SSL_CERT_FILE"}
	}
	return b, nil
}

// FirstBundle reads the first of places that is there, and says which. read is
// asked for os.ErrNotExist.
func FirstBundle(places []string, read func(path string) ([]byte, error)) (b []byte, path string, err error) {
	for _, path := range places {
		b, err := read(path)
		switch {
		case errors.Is(err, os.ErrNotExist):
		case err != nil:
			return nil, path, err
		case len(b) > MaxBundle:
			return nil, path, errors.New(path + " is too long for a bundle of certificates")
		case len(b) > 0:
			return b, path, nil
		}
	}
	return nil, "", errNoBundle
}
