// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"encoding/json"
	"fmt"
	"os"
	"syscall"
)

// own gives directories, a JSON list, to a user, in our own numbering.
func own(directories string, uid, gid int) error {
	var list []string
	if err := json.Unmarshal([]byte(directories), &list); err != nil {
		return fmt.Errorf("%s: %w", OwnVariable, err)
	}
	for _, dir := range list {
		fd, err := syscall.Open(dir, syscall.O_RDONLY|syscall.O_DIRECTORY|syscall.O_NOFOLLOW|syscall.O_CLOEXEC, 0)
		if err != nil {
			return fmt.Errorf("own %s: %w", dir, err)
		}
		err = syscall.Fchmod(fd, 0o755)
		if err == nil {
			err = syscall.Fchown(fd, uid, gid)
		}
		syscall.Close(fd)
		if err != nil {
			return fmt.Errorf("own %s: %w", dir, err)
		}
	}
	return os.Unsetenv(OwnVariable)
}
