// SPDX-License-Identifier: Apache-2.0

package wire

// FetchWord is the argument that makes the program fetch.
const FetchWord = "caisson-fetch"

// FetchRequest is what is to be asked.
type FetchRequest struct {
	Method    string        `json:"method"`
	URL       string        `json:"url"`
	Headers   []FetchHeader `json:"headers,omitempty"`
	Body      []byte        `json:"body,omitempty"`
	Max       int64         `json:"most"`    // bytes of the answer's body, unpacked
	Timeout   float64       `json:"timeout"` // seconds
	Redirects int           `json:"redirects,omitempty"`
}

// FetchHeader is a header. Parts are texts, and names of variables that stand for
// secrets.
type FetchHeader struct {
	Name  string      `json:"name"`
	Parts []FetchPart `json:"parts"`
}

// FetchPart is a text, or a variable's name.
type FetchPart struct {
	Text     string `json:"text,omitempty"`
	Variable string `json:"variable,omitempty"`
}

// FetchAnswer is what came back, or why nothing did.
type FetchAnswer struct {
	Problem string            `json:"problem,omitempty"`
	Status  int               `json:"status,omitempty"`
	Headers map[string]string `json:"headers,omitempty"`
	Body    []byte            `json:"body,omitempty"`
	Cut     bool              `json:"cut,omitempty"` // the body is longer
}
