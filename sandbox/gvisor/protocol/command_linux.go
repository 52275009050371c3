// SPDX-License-Identifier: Apache-2.0

package protocol

import (
	"encoding/json"
	"errors"
	"io"
	"net"
	"os"

	"golang.org/x/sys/unix"
)

// SendCommand sends c on a line of its own, and f with it where that is not nil.
func SendCommand(conn *net.UnixConn, c Command, f *os.File) error {
	c.WithFile = f != nil
	line, err := json.Marshal(c)
	if err != nil {
		return err
	}
	line = append(line, '\n')
	if f == nil {
		_, err = conn.Write(line)
		return err
	}
	// The file goes with the first byte: what is written later could be cut there.
	if _, _, err := conn.WriteMsgUnix(line[:1], unix.UnixRights(int(f.Fd())), nil); err != nil {
		return err
	}
	_, err = conn.Write(line[1:])
	return err
}

// Commands reads what SendCommand has sent.
type Commands struct {
	conn  *net.UnixConn
	lines *json.Decoder
	files []*os.File // whose commands were not read yet
}

// NewCommands reads from conn, which nothing else reads from then on.
func NewCommands(conn *net.UnixConn) *Commands {
	c := &Commands{conn: conn}
	c.lines = json.NewDecoder(c)
	return c
}

// Next is the next command, and the file that came with it, which is the caller's.
func (c *Commands) Next() (Command, *os.File, error) {
	var next Command
	if err := c.lines.Decode(&next); err != nil {
		return next, nil, err
	}
	if !next.WithFile {
		return next, nil, nil
	}
	if len(c.files) == 0 {
		return next, nil, errors.New("the file did not come with the command")
	}
	f := c.files[0]
	c.files = c.files[1:]
	return next, f, nil
}

// Read implements io.Reader. It keeps the files that come.
func (c *Commands) Read(p []byte) (int, error) {
	n, files, err := receiveSome(c.conn, p)
	c.files = append(c.files, files...)
	if n == 0 && err == nil {
		err = io.EOF
	}
	return n, err
}

// Close closes the files that were not taken.
func (c *Commands) Close() {
	for _, f := range c.files {
		f.Close()
	}
	c.files = nil
}
