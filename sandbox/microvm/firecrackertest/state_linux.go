// SPDX-License-Identifier: Apache-2.0

package firecrackertest

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc64"
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// makeMemory makes the machine's memory a file that QEMU shares, so that it is no part of what
// QEMU writes of its devices. Where no file may be as long there is none.
func (d *double) makeMemory(m *Machine) error {
	size := m.Config.Memory << 20
	var longest unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_FSIZE, &longest); err != nil {
		return err
	}
	if longest.Cur < uint64(size) {
		return nil
	}
	fd, err := unix.MemfdCreate("ram", unix.MFD_CLOEXEC)
	if err != nil {
		return err
	}
	d.ram = os.NewFile(uintptr(fd), "ram")
	return d.ram.Truncate(size)
}

// What a machine's file of devices begins with: a sum of the rest, and then a line of JSON.
const sumSize = 8

func sumOf(b []byte) []byte {
	return binary.BigEndian.AppendUint64(nil, crc64.Checksum(b, crc64.MakeTable(crc64.ECMA)))
}

// qemuShares has QEMU leave out the memory of what it writes or reads.
func (d *double) qemuShares() error {
	_, err := d.ask("migrate-set-capabilities", map[string]any{"capabilities": []any{map[string]any{"capability": "x-ignore-shared", "state": true}}}, nil)
	return err
}

// create writes the machine down. Its connections are lost by that.
func (d *double) create(m *Machine, devices, memory string) error {
	if d.ram == nil {
		return words("Cannot perform set_length on the memory backing file").of(unix.EFBIG)
	}
	if err := d.lose(); err != nil {
		return err
	}
	if d.saved { // QEMU wants it to run in between
		if err := errors.Join(d.command("cont"), d.command("stop")); err != nil {
			return err
		}
	}
	d.saved = true
	if err := d.writeDevices(m, devices); err != nil {
		return words("Cannot perform open on the snapshot backing file").of(err)
	}
	if err := d.writeMemory(m.Config.Memory<<20, memory); err != nil {
		return words("Cannot write memory file").of(err)
	}
	return nil
}

func (d *double) writeDevices(m *Machine, to string) error {
	f, err := os.OpenFile(to, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o666)
	if err != nil {
		return err
	}
	defer f.Close()
	head, err := json.Marshal(m)
	if err != nil {
		return err
	}
	if _, err := f.Write(append(append(make([]byte, sumSize), head...), '\n')); err != nil {
		return err
	}
	if err := d.qemuShares(); err != nil {
		return err
	}
	if err := d.migrate("migrate", f); err != nil {
		return err
	}
	all, err := os.ReadFile(to)
	if err != nil {
		return err
	}
	_, err = f.WriteAt(sumOf(all[sumSize:]), 0)
	return err
}

// migrate has QEMU write its devices to a file, or read them from it.
func (d *double) migrate(how string, f *os.File) error {
	if _, err := d.ask("getfd", map[string]any{"fdname": "devices"}, f); err != nil {
		return err
	}
	if _, err := d.ask(how, map[string]any{"uri": "fd:devices"}, nil); err != nil {
		return err
	}
	for {
		b, err := d.ask("query-migrate", nil, nil)
		if err != nil {
			return err
		}
		var now struct {
			Status string `json:"status"`
		}
		if err := json.Unmarshal(b, &now); err != nil {
			return err
		}
		switch now.Status {
		case "completed":
			return nil
		case "failed", "cancelled":
			return fmt.Errorf("%s: %s", how, b)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// writeMemory writes the memory over what is there: a file of another length is cut before.
func (d *double) writeMemory(size int64, to string) error {
	f, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE, 0o666)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if info.Size() != size {
		err = f.Truncate(0)
	}
	if err = errors.Join(err, f.Truncate(size)); err != nil {
		return err
	}
	_, err = io.Copy(f, io.NewSectionReader(d.ram, 0, size))
	return err
}

// load makes the machine that was written down, paused. Its memory is not shared with others
// as Firecracker's is: QEMU would open the file for writing.
func (d *double) load(devices, memory string) (*Machine, error) {
	b, err := os.ReadFile(devices)
	if err != nil {
		return nil, words("Failed to get snapshot state from file: Failed to open snapshot file").of(err)
	}
	if len(b) < sumSize || !bytes.Equal(sumOf(b[sumSize:]), b[:sumSize]) {
		return nil, words("Failed to get snapshot state from file: Failed to load snapshot state from file: CRC64 validation failed")
	}
	head, _, _ := bytes.Cut(b[sumSize:], []byte("\n"))
	m := &Machine{}
	if err := json.Unmarshal(head, m); err != nil {
		return nil, err
	}
	if err := d.readMemory(m, memory); err != nil {
		return nil, words("Failed to load guest memory: Error creating guest memory from file").of(err)
	}
	f, err := os.Open(devices)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if _, err := f.Seek(int64(sumSize+len(head)+1), io.SeekStart); err != nil {
		return nil, err
	}
	if err := d.begin(m, "-S", "-incoming", "defer"); err != nil {
		return nil, err
	}
	if err := d.qemuShares(); err != nil {
		return nil, err
	}
	return m, d.migrate("migrate-incoming", f)
}

func (d *double) readMemory(m *Machine, from string) error {
	f, err := os.Open(from)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	size := m.Config.Memory << 20
	if info.Size() < size {
		return words("Failed to restore guest memory: the file is too short")
	}
	if err := d.makeMemory(m); err != nil {
		return err
	}
	if d.ram == nil {
		return unix.EFBIG
	}
	piece, zeros := make([]byte, 64<<10), make([]byte, 64<<10)
	for at := int64(0); at < size; at += int64(len(piece)) {
		if _, err := f.ReadAt(piece, at); err != nil && err != io.EOF {
			return err
		}
		if bytes.Equal(piece, zeros) {
			continue // it takes no memory
		}
		if _, err := d.ram.WriteAt(piece, at); err != nil {
			return err
		}
	}
	return nil
}
