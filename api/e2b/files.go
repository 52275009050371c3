// SPDX-License-Identifier: Apache-2.0

package e2b

import (
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/caisson-run/caisson/sandbox"
)

// Files go to and from the agent as streams. Nothing of them is kept here, and
// no name in them is a name of the host.

const (
	// uploadPatience is how long an upload, and a client that downloads, may
	// stand still.
	uploadPatience = time.Minute
	// maxWritten bounds what the agent says of an upload, in bytes.
	maxWritten = 1 << 20
)

// What passes between a client and the agent, beside the bytes.
var (
	askHeaders    = []string{"Accept-Encoding", "Range", "If-Range", "If-Modified-Since", "If-Unmodified-Since", "If-None-Match", "If-Match"}
	answerHeaders = []string{"Content-Length", "Content-Range", "Content-Encoding", "Accept-Ranges", "Last-Modified", "Etag", "Vary"}
	uploadHeaders = []string{"Content-Type", "Content-Encoding"}
)

const metadataPrefix = "X-Metadata-"

// filesQuery is what of a request's query is the agent's to know.
func filesQuery(r *http.Request) url.Values {
	return url.Values{"path": {r.URL.Query().Get("path")}}
}

func (s *Server) serveDownload(w http.ResponseWriter, r *http.Request, in *inside) error {
	ask := http.Header{}
	pass(ask, r.Header, askHeaders)
	resp, err := in.Files(r.Context(), r.Method, filesQuery(r), ask, nil)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	pass(w.Header(), resp.Header, answerHeaders)
	// Whatever it is, it is not shown as a page here.
	w.Header().Set("Content-Type", "application/octet-stream")
	w.Header().Set("Content-Disposition", "attachment")
	w.WriteHeader(resp.StatusCode)
	control := http.NewResponseController(w)
	defer control.SetWriteDeadline(time.Time{})
	if _, err := io.Copy(patientWriter{w, control}, resp.Body); err != nil {
		panic(http.ErrAbortHandler) // it has begun: only a break says that it is not whole
	}
	return nil
}

// written is a file of an upload's answer.
type written struct {
	Name     string            `json:"name"`
	Path     string            `json:"path"`
	Type     string            `json:"type"`
	Metadata map[string]string `json:"metadata,omitempty"`
}

func (s *Server) serveUpload(w http.ResponseWriter, r *http.Request, in *inside) error {
	ask := http.Header{}
	pass(ask, r.Header, uploadHeaders)
	for name, values := range r.Header {
		if strings.HasPrefix(name, metadataPrefix) {
			ask[name] = values
		}
	}
	control := http.NewResponseController(w)
	defer control.SetReadDeadline(time.Time{})
	resp, err := in.Files(r.Context(), http.MethodPost, filesQuery(r), ask, patientReader{r.Body, control})
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	var all []written
	if err := json.NewDecoder(io.LimitReader(resp.Body, maxWritten)).Decode(&all); err != nil {
		return &sandbox.Error{Op: "upload", Kind: sandbox.ErrUnavailable, Problem: "the guest agent's answer cannot be read", Cause: err}
	}
	writeJSON(w, http.StatusOK, all)
	return nil
}

// pass copies the named fields.
func pass(to, from http.Header, names []string) {
	for _, n := range names {
		if v := from.Values(n); len(v) > 0 {
			to[n] = v
		}
	}
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
