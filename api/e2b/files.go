// SPDX-License-Identifier: Apache-2.0

package e2b

import (
	"errors"
	"io"
	"maps"
	"net/http"
	"time"

	"github.com/caisson-run/caisson/guest"
	"github.com/caisson-run/caisson/guest/wire"
	"github.com/caisson-run/caisson/sandbox"
)

// Files go to and from the agent as streams. Nothing of them is kept here, and
// no name in them is a name of the host.

// uploadPatience is how long an upload, and a client that downloads, may stand
// still.
const uploadPatience = time.Minute

func (s *Server) serveDownload(w http.ResponseWriter, r *http.Request, in *inside) error {
	d, err := in.Download(r.Context(), r.URL.Query().Get("path"), r.Header)
	if err != nil {
		return err
	}
	defer d.Body.Close()
	maps.Copy(w.Header(), d.Header)
	// Whatever it is, it is not shown as a page here.
	w.Header().Set("Content-Disposition", "attachment")
	w.WriteHeader(d.Status)
	if r.Method == http.MethodHead {
		return nil
	}
	control := http.NewResponseController(w)
	defer control.SetWriteDeadline(time.Time{})
	if _, err := io.Copy(patientWriter{w, control}, d.Body); err != nil {
		panic(http.ErrAbortHandler) // it has begun: only a break says that it is not whole
	}
	return nil
}

// serveUpload answers with the files that were written, in E2B's words.
func (s *Server) serveUpload(w http.ResponseWriter, r *http.Request, in *inside) error {
	control := http.NewResponseController(w)
	defer control.SetReadDeadline(time.Time{})
	all, err := in.Upload(r.Context(), guest.Upload{
		Path: r.URL.Query().Get("path"), ContentType: r.Header.Get("Content-Type"), ContentEncoding: r.Header.Get("Content-Encoding"),
		Metadata: r.Header, Body: patientReader{r.Body, control},
	})
	if err != nil {
		return err
	}
	answer := make([]wire.Written, 0, len(all))
	for _, f := range all {
		answer = append(answer, written(f))
	}
	writeJSON(w, http.StatusOK, answer)
	return nil
}

func written(f guest.Written) wire.Written {
	return wire.Written{Name: f.Name, Path: f.Path, Type: "file", Metadata: f.Metadata}
}

// serveCompose makes one file of several.
func (s *Server) serveCompose(w http.ResponseWriter, r *http.Request, in *inside) error {
	var q wire.ComposeRequest
	if err := readUnary(w, r, &q); errors.Is(err, sandbox.ErrExhausted) {
		return err
	} else if err != nil {
		return &apiError{http.StatusBadRequest, err.Error()}
	}
	f, err := in.Compose(r.Context(), q.Sources, q.Destination)
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, written(f))
	return nil
}

// patientReader lets a body come slowly, but not stop.
type patientReader struct {
	io.Reader
	control *http.ResponseController
}

// Read implements io.Reader.
func (p patientReader) Read(b []byte) (int, error) {
	p.control.SetReadDeadline(time.Now().Add(uploadPatience))
	return p.Reader.Read(b)
}

// patientWriter lets a client take its time, but not stop.
type patientWriter struct {
	http.ResponseWriter
	control *http.ResponseController
}

// Write implements io.Writer.
func (p patientWriter) Write(b []byte) (int, error) {
	p.control.SetWriteDeadline(time.Now().Add(uploadPatience))
	return p.ResponseWriter.Write(b)
}
