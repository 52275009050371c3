// SPDX-License-Identifier: Apache-2.0

package protocol

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"

	"golang.org/x/sys/unix"
)

// Before events and commands, which are lines of JSON, the owner sends two
// messages: a Birth and an Order. A message is its length and the number of
// its files, each in 4 bytes, little endian; the files, some with each of as
// many bytes as it takes; and JSON.

const (
	atOnce    = 250      // SCM_RIGHTS takes 253 (SCM_MAX_FD in net/scm.h)
	maxFiles  = 1 << 16  // more than a process may have open by default
	maxLength = 64 << 20 // a spec has some kilobytes
)

// Send sends v with files.
func Send(conn *net.UnixConn, v any, files []*os.File) error {
	data, err := json.Marshal(v)
	if err != nil {
		return err
	}
	if len(data) > maxLength || len(files) > maxFiles {
		return fmt.Errorf("a message of %d bytes and %d files is too large", len(data), len(files))
	}
	head := binary.LittleEndian.AppendUint32(nil, uint32(len(data)))
	head = binary.LittleEndian.AppendUint32(head, uint32(len(files)))
	if _, err := conn.Write(head); err != nil {
		return err
	}
	for len(files) > 0 {
		n := min(len(files), atOnce)
		fds := make([]int, n)
		for i, f := range files[:n] {
			fds[i] = int(f.Fd())
		}
		if _, _, err := conn.WriteMsgUnix([]byte{0}, unix.UnixRights(fds...), nil); err != nil {
			return err
		}
		files = files[n:]
	}
	_, err = conn.Write(data)
	return err
}

// Receive receives v and its files. An owner that is gone is an io.EOF or
// io.ErrUnexpectedEOF.
func Receive(conn *net.UnixConn, v any) (files []*os.File, err error) {
	defer func() {
		if err != nil {
			for _, f := range files {
				f.Close()
			}
			files = nil
		}
	}()
	var head [8]byte
	if _, err := io.ReadFull(conn, head[:]); err != nil {
		return nil, err
	}
	length, count := binary.LittleEndian.Uint32(head[:4]), int(binary.LittleEndian.Uint32(head[4:]))
	if length > maxLength || count > maxFiles {
		return nil, fmt.Errorf("a message of %d bytes and %d files is too large", length, count)
	}
	for len(files) < count {
		some, err := receiveFiles(conn)
		files = append(files, some...)
		if err != nil {
			return files, err
		}
	}
	if len(files) != count {
		return files, fmt.Errorf("%d files came, %d were announced", len(files), count)
	}
	data := make([]byte, length)
	if _, err := io.ReadFull(conn, data); err != nil {
		return files, err
	}
	return files, json.Unmarshal(data, v)
}

// receiveFiles receives one byte and the files that go with it.
func receiveFiles(conn *net.UnixConn) ([]*os.File, error) {
	n, files, err := receiveSome(conn, make([]byte, 1))
	switch {
	case err != nil:
		return files, err
	case n == 0:
		return nil, io.ErrUnexpectedEOF
	case len(files) == 0:
		return nil, errLost
	}
	return files, nil
}

var errLost = errors.New("files were lost on the way")

// receiveSome reads bytes and the files that go with them.
func receiveSome(conn *net.UnixConn, p []byte) (int, []*os.File, error) {
	space := make([]byte, unix.CmsgSpace(4*atOnce))
	n, oobn, flags, _, err := conn.ReadMsgUnix(p, space)
	if err != nil || oobn == 0 {
		return n, nil, err
	}
	messages, err := unix.ParseSocketControlMessage(space[:oobn])
	if err != nil {
		return n, nil, err
	}
	var files []*os.File
	for _, m := range messages {
		fds, err := unix.ParseUnixRights(&m)
		if err != nil {
			return n, files, err
		}
		for _, fd := range fds {
			files = append(files, os.NewFile(uintptr(fd), "handed over"))
		}
	}
	if flags&unix.MSG_CTRUNC != 0 {
		return n, files, errLost
	}
	return n, files, nil
}
