// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/md5" // the format's own checksum of installed files; it protects nothing
	_ "embed"
	"flag"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"
)

// The service that the package brings, switched off: its unit, the one whose control
// group its sandboxes are in where systemd is old, its user, and the script that makes
// the user.
var (
	//go:embed caisson.service
	unit []byte
	//go:embed caisson-sandboxes.service
	groupUnit []byte
	//go:embed caisson.sysusers
	sysusers []byte
	//go:embed postinst
	postinst []byte
)

// Package says what goes into one .deb.
type Package struct {
	Version string    // as git describes it: v1.2.3-4-gabcdef
	Arch    string    // Debian's name, which for amd64 and arm64 is Go's
	Date    time.Time // of every file
	Binary  []byte
	License []byte
}

// packDeb is `pack deb`: its flags are args.
func packDeb(args []string) error {
	var p Package
	flags := flag.NewFlagSet("pack deb", flag.ExitOnError)
	flags.StringVar(&p.Version, "version", "v0.0.0-dev", "version, as git describes it")
	flags.StringVar(&p.Arch, "arch", "amd64", "amd64 or arm64")
	date := flags.Int64("date", 0, "time of every file, seconds since 1970")
	binary := flags.String("binary", "bin/caisson", "the static binary")
	license := flags.String("license", "LICENSE", "the licence's text")
	out := flags.String("out", "dist", "directory to write to")
	if err := flags.Parse(args); err != nil {
		return err
	}
	p.Date = time.Unix(*date, 0).UTC()
	return write(&p, *binary, *license, *out)
}

// write reads the two files, and writes caisson_VERSION_ARCH.deb into dir.
func write(p *Package, binary, license, dir string) (err error) {
	if p.Binary, err = os.ReadFile(binary); err != nil {
		return err
	}
	if p.License, err = os.ReadFile(license); err != nil {
		return err
	}
	var deb bytes.Buffer
	if err := p.Encode(&deb); err != nil {
		return err
	}
	name := filepath.Join(dir, fmt.Sprintf("caisson_%s_%s.deb", DebVersion(p.Version), p.Arch))
	return os.WriteFile(name, deb.Bytes(), 0o644)
}

// DebVersion turns git's description into a version that dpkg orders rightly:
// v1.2.3 stays 1.2.3, v1.2.3-4-gabc is 1.2.3+4.gabc, a pre-release v1.2.3-rc1
// is 1.2.3~rc1 and so comes before it.
func DebVersion(v string) string {
	base, rest, _ := strings.Cut(strings.TrimPrefix(v, "v"), "-")
	switch {
	case rest == "":
		return base
	case rest[0] >= '0' && rest[0] <= '9': // commits since the tag
		return base + "+" + strings.ReplaceAll(rest, "-", ".")
	default:
		return base + "~" + strings.ReplaceAll(rest, "-", ".")
	}
}

// Encode writes the package.
func (p *Package) Encode(w io.Writer) error {
	copyright := "Licence: Apache-2.0\n\n" + string(p.License)
	files := []file{
		{"usr/bin/caisson", 0o755, p.Binary},
		{"usr/lib/systemd/system/caisson.service", 0o644, unit},
		{"usr/lib/systemd/system/caisson-sandboxes.service", 0o644, groupUnit},
		{"usr/lib/sysusers.d/caisson.conf", 0o644, sysusers},
		{"usr/share/doc/caisson/copyright", 0o644, []byte(copyright)},
	}
	data, err := p.tarball(files)
	if err != nil {
		return err
	}
	var sums strings.Builder
	size := 0
	for _, f := range files {
		fmt.Fprintf(&sums, "%x  %s\n", md5.Sum(f.content), f.name)
		size += len(f.content)
	}
	meta := fmt.Sprintf(`Package: caisson
Version: %s
Architecture: %s
Maintainer: caisson maintainers <maintainers@caisson.invalid>
Installed-Size: %d
Section: admin
Priority: optional
Description: runs untrusted code of AI agents where it can do no harm
 One static binary that carries gVisor's application kernel inside itself: no
 daemon, no containers, no root needed. Every limit is on, the network is off.
`, DebVersion(p.Version), p.Arch, (size+1023)/1024)
	control, err := p.tarball([]file{
		{"control", 0o644, []byte(meta)},
		{"postinst", 0o755, postinst},
		{"md5sums", 0o644, []byte(sums.String())},
	})
	if err != nil {
		return err
	}
	return p.ar(w, []file{
		{"debian-binary", 0o644, []byte("2.0\n")},
		{"control.tar.gz", 0o644, control},
		{"data.tar.gz", 0o644, data},
	})
}

type file struct {
	name    string
	mode    int64
	content []byte
}

// tarball packs files, and the directories that lead to them, as root's.
func (p *Package) tarball(files []file) ([]byte, error) {
	var buf bytes.Buffer
	gz := gzip.NewWriter(&buf)
	tw := tar.NewWriter(gz)
	made := map[string]bool{}
	var mkdir func(dir string) error
	mkdir = func(dir string) error {
		if made[dir] {
			return nil
		}
		made[dir] = true
		name := "./"
		if dir != "." {
			if err := mkdir(path.Dir(dir)); err != nil {
				return err
			}
			name = "./" + dir + "/"
		}
		return tw.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: name, Mode: 0o755, ModTime: p.Date, Format: tar.FormatGNU})
	}
	for _, f := range files {
		if err := mkdir(path.Dir(f.name)); err != nil {
			return nil, err
		}
		h := &tar.Header{Typeflag: tar.TypeReg, Name: "./" + f.name, Mode: f.mode, Size: int64(len(f.content)), ModTime: p.Date, Format: tar.FormatGNU}
		if err := tw.WriteHeader(h); err != nil {
			return nil, err
		}
		if _, err := tw.Write(f.content); err != nil {
			return nil, err
		}
	}
	if err := tw.Close(); err != nil {
		return nil, err
	}
	err := gz.Close()
	return buf.Bytes(), err
}

// ar writes the outer archive, ar(5) in its common form.
func (p *Package) ar(w io.Writer, members []file) error {
	if _, err := io.WriteString(w, "!<arch>\n"); err != nil {
		return err
	}
	for _, m := range members {
		head := fmt.Sprintf("%-16s%-12d%-6d%-6d%-8o%-10d`\n", m.name, p.Date.Unix(), 0, 0, 0o100000|m.mode, len(m.content))
		body := m.content
		if len(body)%2 == 1 { // members start at even offsets
			body = append(bytes.Clone(body), '\n')
		}
		if _, err := w.Write(append([]byte(head), body...)); err != nil {
			return err
		}
	}
	return nil
}
