// SPDX-License-Identifier: Apache-2.0

package e2b

import (
	"compress/gzip"
	"context"
	"errors"
	"io"
	"mime"
	"mime/multipart"
	"net/http"
	"net/textproto"
	"strings"

	"github.com/caisson-run/caisson/guest"
	"github.com/caisson-run/caisson/policy"
	"github.com/caisson-run/caisson/sandbox"
	"github.com/caisson-run/caisson/session"
)

// Each transfer of a file, and whatever changes files, is a call: decided by the
// key's policy, path by path, and recorded. The agent is then asked by the paths that
// were decided, never by how a client wrote them.

// touch has do carry out a call about files, by the paths that were decided and with
// the rights of the user whose they were.
func (s *Server) touch(ctx context.Context, in *inside, kind policy.Kind, paths []string, do func(agent *guest.Client, paths []string) ([]sandbox.File, error)) error {
	a, err := s.o.Sandboxes.BeginFiles(ctx, in.owner, in.box.ID, session.FileCall{Door: "e2b", Kind: kind, Paths: paths, User: in.user})
	if err != nil {
		return err
	}
	files, err := do(a.Agent, a.Paths)
	return errors.Join(err, a.End(ctx, files, err))
}

// formUpload passes a form of files on to the agent, each under the path that was
// allowed for it: what the agent reads is written here, not what the client sent.
type formUpload struct {
	allow   func(name string) (path string, err error)
	refused error
	files   []sandbox.File
}

// pass writes the form anew. What the policy refuses ends it: the agent hears that
// its request broke off, and leaves what it has of the file.
func (u *formUpload) pass(form *multipart.Reader, out *multipart.Writer) error {
	for {
		part, err := form.NextPart()
		if err == io.EOF {
			return out.Close()
		}
		if err != nil {
			return err
		}
		name, ok := formFile(part.Header)
		if !ok {
			continue
		}
		p, err := u.allow(name)
		if err != nil {
			u.refused = err
			return err
		}
		disposition := mime.FormatMediaType("form-data", map[string]string{"name": "file", "filename": p})
		if disposition == "" {
			return &apiError{http.StatusBadRequest, "the file's name cannot be passed on"}
		}
		to, err := out.CreatePart(textproto.MIMEHeader{"Content-Disposition": {disposition}})
		if err != nil {
			return err
		}
		t := session.NewTally()
		if _, err := io.Copy(io.MultiWriter(to, t), part); err != nil {
			return err
		}
		u.files = append(u.files, t.File(p, false))
	}
}

// formFile is a part's file name with its directories, which Part.FileName cuts
// off. Parts that are no files are nothing, as for the agent.
func formFile(h textproto.MIMEHeader) (string, bool) {
	_, params, err := mime.ParseMediaType(h.Get("Content-Disposition"))
	return params["filename"], err == nil && params["name"] == "file"
}

// openForm reads a form, which may be packed. It is nil for what is none.
func openForm(r *http.Request, body io.Reader) (*multipart.Reader, error) {
	kind, params, _ := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if !strings.HasPrefix(kind, "multipart/") {
		return nil, nil
	}
	if params["boundary"] == "" {
		return nil, &apiError{http.StatusBadRequest, "the form has no boundary"}
	}
	encoding, _, _ := strings.Cut(r.Header.Get("Content-Encoding"), ";")
	switch strings.ToLower(strings.TrimSpace(encoding)) {
	case "", "identity":
	case "gzip":
		z, err := gzip.NewReader(body)
		if err != nil {
			return nil, &apiError{http.StatusBadRequest, "the form cannot be unpacked"}
		}
		body = z
	default:
		return nil, &apiError{http.StatusBadRequest, "Content-Encoding is neither gzip nor identity"}
	}
	return multipart.NewReader(body, params["boundary"]), nil
}
