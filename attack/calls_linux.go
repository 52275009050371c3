// SPDX-License-Identifier: Apache-2.0

package attack

import "encoding/json"

// arguments are those of a tool: names and values by turns.
func arguments(pairs ...string) string {
	m := map[string]string{}
	for i := 0; i+1 < len(pairs); i += 2 {
		m[pairs[i]] = pairs[i+1]
	}
	text, _ := json.Marshal(m)
	return string(text)
}

// marker declares a tool that makes a file whose name fits a pattern, with more
// in its entry.
func marker(pattern, more string) string {
	return `tools:
  - name: mark
    description: Makes a file.
    params: {type: object, additionalProperties: false, required: [name], properties: {name: {type: string, pattern: "` + pattern + `"}, n: {type: integer, minimum: 0, maximum: 9}}}
    command: [touch, --, "{name}"]
` + more
}
