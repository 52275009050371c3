// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"bufio"
	"compress/gzip"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"mime"
	"mime/multipart"
	"net/http"
	"os"
	"path"
	"strconv"
	"strings"
	"syscall"

	"github.com/caisson-run/caisson/internal/envd"
)

// errDiskFull is what an upload gets for which there is no room.
var errDiskFull = errors.New("not enough disk space available")

// serveUpload answers POST /files: a body for the path that the query names,
// or a form with files. Our own parameters are atomic=1, which puts the file
// in place only when it is whole, and mode in octal.
func (a *Agent) serveUpload(w http.ResponseWriter, r *http.Request) {
	o, err := a.upload(r)
	if err != nil {
		writeFileError(w, err)
		return
	}
	body, err := inflate(r)
	if err != nil {
		writeFileError(w, err)
		return
	}
	kind, params, _ := mime.ParseMediaType(r.Header.Get("Content-Type"))
	switch {
	case kind == "application/octet-stream" && !o.named:
		err = &connectError{codeInvalid, "path query parameter is required for raw body upload"}
	case kind == "application/octet-stream":
		err = o.one(o.to, body)
	case strings.HasPrefix(kind, "multipart/"):
		// A form is read 4 KiB at a time, and each read of a request is a message to
		// the server's own loop.
		err = o.form(multipart.NewReader(bufio.NewReaderSize(body, pieceSize), params["boundary"]))
	default:
		err = &connectError{codeInvalid, fmt.Sprintf("unsupported content type: %s, expected multipart/form-data or application/octet-stream", r.Header.Get("Content-Type"))}
	}
	if errors.Is(err, errDiskFull) && r.ContentLength > 0 {
		err = fmt.Errorf("attempted to write %d bytes: %w", r.ContentLength, err)
	}
	if err != nil {
		writeFileError(w, err)
		return
	}
	writeJSON(w, http.StatusOK, o.written)
}

// inflate is the request's body, unpacked where it says that it is packed.
func inflate(r *http.Request) (io.Reader, error) {
	encoding, _, _ := strings.Cut(r.Header.Get("Content-Encoding"), ";")
	switch strings.ToLower(strings.TrimSpace(encoding)) {
	case "", "identity":
		return r.Body, nil
	case "gzip":
		z, err := gzip.NewReader(r.Body)
		if err != nil {
			return nil, &connectError{codeInvalid, "error decompressing request body: " + err.Error()}
		}
		return z, nil
	}
	return nil, &connectError{codeInvalid, fmt.Sprintf("error decompressing request body: unsupported Content-Encoding: %s, supported: [gzip]", r.Header.Get("Content-Encoding"))}
}

// upload is one request that writes files.
type upload struct {
	user     user
	to       string // the path that the query names
	named    bool   // it names one: an empty one is none
	atomic   bool
	mode     int // -1: as the umask has it
	metadata map[string]string
	written  []envd.Written
}

func (a *Agent) upload(r *http.Request) (*upload, error) {
	q := r.URL.Query()
	u, err := a.user(r)
	if err != nil {
		return nil, err
	}
	o := &upload{user: u, to: q.Get("path"), named: q.Get("path") != "", atomic: q.Get("atomic") == "1", mode: -1, written: []envd.Written{}}
	if m := q.Get("mode"); m != "" {
		v, err := strconv.ParseUint(m, 8, 32)
		if err != nil || v > 0o7777 {
			return nil, &connectError{codeInvalid, "the mode is not octal"}
		}
		o.mode = int(v)
	}
	if o.metadata, err = envd.ParseMetadata(r.Header); err != nil {
		return nil, &connectError{codeInvalid, "invalid metadata: " + err.Error()}
	}
	return o, nil
}

// form writes the parts named file.
func (o *upload) form(form *multipart.Reader) error {
	for {
		part, err := form.NextPart()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return &connectError{codeInvalid, "error reading form: " + err.Error()}
		}
		isFile, name := fileName(part.Header.Get("Content-Disposition"))
		if !isFile {
			continue
		}
		if o.named {
			name = o.to
		}
		if err := o.one(name, part); err != nil {
			return err
		}
	}
}

// fileName reads a part's disposition: whether it is a file, and the file's
// name with its directories, which multipart.Part.FileName would cut off.
func fileName(disposition string) (isFile bool, name string) {
	_, params, err := mime.ParseMediaType(disposition)
	if err != nil || params["name"] != "file" {
		return false, ""
	}
	return true, params["filename"]
}

// one writes one file.
func (o *upload) one(name string, r io.Reader) error {
	p, err := o.user.path(name)
	if err != nil {
		return err
	}
	for _, w := range o.written {
		if w.Path == p {
			return &connectError{codeInvalid, fmt.Sprintf("you cannot upload multiple files to the same path '%s' in one upload request, only the first specified file was uploaded", p)}
		}
	}
	kept, err := o.write(p, r)
	if err != nil {
		return err
	}
	o.written = append(o.written, envd.Written{Name: path.Base(p), Path: p, Type: "file", Metadata: kept})
	return nil
}

// write writes a file and the directories above it, and returns what of the
// metadata its file system keeps.
func (o *upload) write(p string, r io.Reader) (kept map[string]string, err error) {
	target, flags := p, os.O_WRONLY|os.O_CREATE|os.O_TRUNC
	if o.atomic {
		// Beside it, since a rename cannot leave the file system.
		target = path.Join(path.Dir(p), ".caisson-"+rand.Text())
		flags = os.O_WRONLY | os.O_CREATE | os.O_EXCL
	}
	var f *os.File
	err = o.user.as(func() (err error) {
		i, none := os.Stat(p)
		if none == nil && i.IsDir() {
			return &connectError{codeInvalid, "path is a directory: " + p}
		}
		if err := os.MkdirAll(path.Dir(p), 0o755); err != nil {
			return err
		}
		f, err = openRegular(target, flags, 0o666)
		if err == nil && errors.Is(none, fs.ErrNotExist) {
			claim(f)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	err = fill(f, r)
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		err = errDiskFull
	}
	if err == nil {
		err = o.user.as(func() (err error) {
			if o.mode >= 0 {
				err = syscall.Fchmod(int(f.Fd()), uint32(o.mode))
			}
			if err == nil {
				kept, err = setMetadata(f, o.metadata)
			}
			return err
		})
	}
	err = errors.Join(err, f.Close())
	if !o.atomic {
		return kept, err
	}
	return kept, o.user.as(func() error {
		if err == nil {
			err = os.Rename(target, p)
		}
		if err != nil {
			os.Remove(target)
		}
		return err
	})
}

// claim gives a new file to who has it already: envd, which is root, gives it to its user, and
// clients that watch the directory wait for the change of attributes between its creation and
// what is written. It may fail.
func claim(f *os.File) {
	var st syscall.Stat_t
	if syscall.Fstat(int(f.Fd()), &st) == nil {
		_ = syscall.Fchown(int(f.Fd()), int(st.Uid), int(st.Gid))
	}
}

// pieceSize is how much of a file is read, and written, at once where there is so
// much: a system call inside gVisor costs what copying some 20 KiB does.
const pieceSize = 256 << 10

// fill copies r to f in pieces of that size, however small those are in which it
// comes.
func fill(f *os.File, r io.Reader) error {
	w := bufio.NewWriterSize(struct{ io.Writer }{f}, pieceSize) // not its ReadFrom, which would go around the buffer
	_, err := w.ReadFrom(r)
	if left := w.Flush(); err == nil { // what came before a break is there, as it would be without us
		err = left
	}
	return err
}
