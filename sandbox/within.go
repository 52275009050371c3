// SPDX-License-Identifier: Apache-2.0

package sandbox

import "strings"

// Within reports whether path is dir or lies below it, by components: /data is no part
// of /database. Both are absolute and clean, with slashes. Nothing is looked up.
func Within(path, dir string) bool {
	return path == dir || dir == "/" || strings.HasPrefix(path, dir+"/")
}
