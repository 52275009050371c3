// SPDX-License-Identifier: Apache-2.0

package e2b

import (
	"compress/gzip"
	"io"
	"mime"
	"mime/multipart"
	"net/http"
	"net/textproto"
	"strings"
)

// form is a form with files.
type form struct{ *multipart.Reader }

// next gives the next file of a form and its name, and io.EOF behind the last one. Parts that
// are no files are left out.
func (f *form) next() (name string, file io.Reader, _ error) {
	for {
		part, err := f.NextPart()
		if err == io.EOF {
			return "", nil, err
		}
		if err != nil {
			return "", nil, &apiError{http.StatusBadRequest, "the form cannot be read"}
		}
		if name, ok := formFile(part.Header); ok {
			return name, part, nil
		}
	}
}

// formFile is a part's file name with its directories, which Part.FileName cuts
// off.
func formFile(h textproto.MIMEHeader) (string, bool) {
	_, params, err := mime.ParseMediaType(h.Get("Content-Disposition"))
	return params["filename"], err == nil && params["name"] == "file"
}

// openForm reads a form, which may be packed. It is nil for what is none.
func openForm(r *http.Request, body io.Reader) (*form, error) {
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
	return &form{multipart.NewReader(body, params["boundary"])}, nil
}
