// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"bufio"
	"cmp"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"mime"
	"net/http"
	"os"
	"path"
	"strings"
	"syscall"

	"github.com/caisson-run/caisson/internal/envd"
)

// serveDownload answers GET /files with a file's bytes. Its type is always that
// of bytes: what a browser would make of a page from inside is no business of
// the server's.
func (a *Agent) serveDownload(w http.ResponseWriter, r *http.Request) {
	f, err := a.openDownload(r)
	if err != nil {
		writeFileError(w, err)
		return
	}
	defer f.Close()
	i, err := f.Stat()
	if err != nil {
		writeFileError(w, err)
		return
	}
	compressed, ok := envd.AcceptsGzip(r.Header.Get("Accept-Encoding"))
	conditional := false
	for _, name := range []string{"Range", "If-Modified-Since", "If-None-Match", "If-Range"} {
		conditional = conditional || r.Header.Get(name) != ""
	}
	if conditional { // parts are parts of the file itself
		compressed, ok = false, ok && envd.AcceptsIdentity(r.Header.Get("Accept-Encoding"))
	}
	if !ok {
		writeStatus(w, http.StatusNotAcceptable, "no acceptable encoding found, supported: gzip, identity")
		return
	}
	h := w.Header()
	h.Set("Content-Type", "application/octet-stream")
	h.Set("Vary", "Accept-Encoding")
	h.Set("Content-Disposition", mime.FormatMediaType("inline", map[string]string{"filename": path.Base(f.Name())}))
	switch {
	case compressed && i.Size() > 0:
		h.Set("Content-Encoding", "gzip")
		z, _ := gzip.NewWriterLevel(w, gzip.BestSpeed) // the level is one that there is
		io.Copy(z, f)
		z.Close()
	case i.Size() > 0:
		out := bufio.NewWriterSize(w, pieceSize)
		http.ServeContent(gathered{w, out}, r, "", i.ModTime(), f)
		out.Flush()
	default:
		serveUnsized(w, f)
	}
}

// gathered is an answer whose body is written in large pieces.
type gathered struct {
	http.ResponseWriter
	body *bufio.Writer
}

func (g gathered) Write(p []byte) (int, error)         { return g.body.Write(p) }
func (g gathered) ReadFrom(r io.Reader) (int64, error) { return g.body.ReadFrom(r) }

// serveUnsized serves a file of /proc, which says that it has no size, or one
// that is empty, and says so.
func serveUnsized(w http.ResponseWriter, f *os.File) {
	first := make([]byte, 32<<10)
	n, err := f.Read(first)
	if n == 0 && err == io.EOF {
		w.Header().Set("Content-Length", "0")
		return
	}
	w.Write(first[:n])
	io.Copy(w, f)
}

func (a *Agent) openDownload(r *http.Request) (f *os.File, err error) {
	name := cmp.Or(r.URL.Query().Get("path"), "~") // which is a directory
	err = a.withPath(r, name, func(p string) error {
		i, err := os.Stat(p)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return &connectError{codeNotFound, fmt.Sprintf("path '%s' does not exist", p)}
		case err != nil:
			return err
		case i.IsDir():
			return &connectError{codeInvalid, fmt.Sprintf("path '%s' is a directory", p)}
		}
		f, err = openRegular(p, os.O_RDONLY, 0)
		return err
	})
	return f, err
}

// writeFileError answers as envd's /files does: the code is the status.
func writeFileError(w http.ResponseWriter, err error) {
	status, message := asConnect(err).status(), err.Error()
	switch {
	case errors.Is(err, errDiskFull):
		status = http.StatusInsufficientStorage
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		status, message = http.StatusInsufficientStorage, errDiskFull.Error()
	case errors.Is(err, fs.ErrPermission):
		status = http.StatusForbidden
	}
	writeStatus(w, status, message)
}

func writeStatus(w http.ResponseWriter, status int, message string) {
	writeJSON(w, status, struct {
		Code    int    `json:"code"`
		Message string `json:"message"`
	}{status, strings.ToValidUTF8(message, "\ufffd")})
}
