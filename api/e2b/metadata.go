// SPDX-License-Identifier: Apache-2.0

package e2b

import (
	"net/http"
	"net/url"
)

// metadataQuery reads the filter of a list: a query inside a query, whose names
// and values are escaped once more. s has been unescaped once, by the query
// that it came in.
func metadataQuery(s string) (map[string]string, error) {
	if s == "" {
		return nil, nil
	}
	bad := &apiError{http.StatusBadRequest, "the metadata filter is no query of escaped names and values"}
	q, err := url.ParseQuery(s)
	if err != nil {
		return nil, bad
	}
	m := make(map[string]string, len(q))
	for k, v := range q {
		name, err := url.QueryUnescape(k)
		if err != nil {
			return nil, bad
		}
		value, err := url.QueryUnescape(v[len(v)-1])
		if err != nil {
			return nil, bad
		}
		m[name] = value
	}
	return m, nil
}
